from . import datasets as datasets
from . import functional as functional
from . import metrics as metrics
from . import pasta as pasta
from .available import AVAILABLE_METRICS as AVAILABLE_METRICS
from .evaluation import evaluate as evaluate
from .explorer.explore import Explorer as Explorer
from .explorer.explore import explore as explore
from .functional import positive_percentile as positive_percentile
from .metrics import *  # noqa: F403 - a new metric is named there alone
from .painted.subject import PaintedSubject as PaintedSubject
from .painted.subject import painted_subject as painted_subject
from .results.comparison import compare as compare
from .results.comparison import plot_comparison as plot_comparison
from .results.over_seeds import reliability as reliability
from .results.summary import Evaluation as Evaluation
from .results.summary import summarise as summarise
from .results.summary_plot import plot_summary as plot_summary
from .results.tables import headline as headline
from .results.tables import to_latex as to_latex
from .results.tables import to_markdown as to_markdown

__version__: str

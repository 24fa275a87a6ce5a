from .cases import MetricCase as MetricCase
from .contract import parametrize_with_metrics as parametrize_with_metrics
from .scores import trial_metrics as trial_metrics
from .trial import meta_evaluate as meta_evaluate
from .trial import noticed as noticed
from .trial import trial_table as trial_table
from .trial_plot import plot_trial as plot_trial
from .worlds import predict_world as predict_world

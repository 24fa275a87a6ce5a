from .schedule import TieSchedule as TieSchedule
from .schedule import plot_schedule as plot_schedule
from .tied import TiedPair as TiedPair
from .tied import TiedScheduler as TiedScheduler
from .tied import tied_pair as tied_pair

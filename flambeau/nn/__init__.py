"""Neural networks: modules, their parameters, the functions they call, and how weights are initialised."""
from . import attention, common_types, functional, init, modules, parallel, parameter, utils
from .modules import *
from .parallel import DataParallel
from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

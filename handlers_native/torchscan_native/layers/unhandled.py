"""Classes of `torch.nn` without a formula, each with the reason."""

from __future__ import annotations

from typing import Final

__all__ = ["UNHANDLED"]

_BASE = "an abstract base class, not called itself"
_CONTAINER = "a container: the modules it calls count, it computes nothing"
_LAZY = "becomes the plain class while its first call runs, and that class is handled"
_TARGETS = "how much it computes depends on the targets' values"
_LOSS = "a loss outside of the table of element costs"

#: Class name to reason. What they compute is left to their children and to the operator audit.
UNHANDLED: Final[dict[str, str]] = {
    "Module": _BASE,
    "RNNBase": _BASE,
    "RNNCellBase": _BASE,
    "Container": _BASE,
    "Sequential": _CONTAINER,
    "ModuleList": _CONTAINER,
    "ModuleDict": _CONTAINER,
    "ParameterList": "a container of parameters, not called",
    "ParameterDict": "a container of parameters, not called",
    "DataParallel": "a wrapper: the replicas it calls count, scattering and gathering are outside of the model",
    **{f"LazyBatchNorm{n}d": _LAZY for n in (1, 2, 3)},
    **{f"LazyConv{n}d": _LAZY for n in (1, 2, 3)},
    **{f"LazyConvTranspose{n}d": _LAZY for n in (1, 2, 3)},
    **{f"LazyInstanceNorm{n}d": _LAZY for n in (1, 2, 3)},
    "LazyLinear": _LAZY,
    "AdaptiveLogSoftmaxWithLoss": _TARGETS,
    "CTCLoss": _TARGETS,
    "MultiLabelMarginLoss": _TARGETS,
    "CrossMapLRN2d": "a legacy autograd function; LocalResponseNorm computes the same and is handled",
    "LinearCrossEntropyLoss": "works in chunks that its options choose; its projection is seen by the operator audit",
    "HingeEmbeddingLoss": _LOSS,
    "CosineEmbeddingLoss": _LOSS,
    "MultiMarginLoss": _LOSS,
    "MultiLabelSoftMarginLoss": _LOSS,
    "PoissonNLLLoss": _LOSS,
    "GaussianNLLLoss": _LOSS,
    "TripletMarginLoss": _LOSS,
    "TripletMarginWithDistanceLoss": "calls a distance of the caller's choice; a distance module counts as its child",
}

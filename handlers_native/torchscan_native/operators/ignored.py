"""Operators that are no work, and why. Derivation: docs/derivations/functional-operators.md#no-work."""

from __future__ import annotations

from collections.abc import Iterator

from torchscan.contract.operators import OperatorFormula
from torchscan_native.operators.shapes import offer

__all__ = ["formulas"]

#: Reason to operators. What PyTorch's schemas already mark as views is recognised without a list.
_REASONS = {
    "Tensor creation is excluded: constants cost nothing.": (
        "zeros ones full arange range linspace logspace eye scalar_tensor zeros_like ones_like full_like new_zeros "
        "new_ones new_full tril_indices triu_indices zero zero_ fill fill_ lift lift_fresh lift_fresh_copy "
        "_foreach_zero_ hann_window hamming_window blackman_window bartlett_window kaiser_window fft_fftfreq "
        "fft_rfftfreq _efficientzerotensor"
    ),
    "Tensor allocation is excluded.": (
        "empty empty_like empty_strided empty_permuted new_empty new_empty_strided resize_ resize_as_ set_ "
        "_resize_output_"
    ),
    "Layout copies and conversions are excluded.": (
        "clone _lazy_clone _to_copy _conj_physical _pin_memory _foreach_clone _foreach_copy_ _foreach_copy to_mkldnn "
        "_mkldnn_reshape _mkldnn_transpose mkldnn_reorder_conv2d_weight mkldnn_reorder_conv3d_weight _to_dense"
    ),
    "Metadata-only tensor view.": (
        "_unsafe_view unsafe_split unsafe_split_with_sizes t_ transpose_ squeeze_ unsqueeze_ as_strided_ detach_ "
        "view_copy expand_copy permute_copy transpose_copy t_copy squeeze_copy unsqueeze_copy slice_copy select_copy "
        "alias_copy as_strided_copy detach_copy diagonal_copy split_copy split_with_sizes_copy unbind_copy "
        "unfold_copy _reshape_alias_copy view_as_real_copy view_as_complex_copy"
    ),
    "Random numbers are excluded.": (
        "rand rand_like randn randn_like randint randint_like randperm normal normal_ uniform uniform_ bernoulli "
        "bernoulli_ exponential exponential_ log_normal_ cauchy_ geometric_ random random_ multinomial poisson "
        "binomial _standard_gamma _sample_dirichlet normal_functional"
    ),
    "Asks about a tensor or checks it, without computing.": (
        "_local_scalar_dense is_same_size is_set_to is_pinned is_coalesced _has_same_storage_numel record_stream "
        "_assert_async _assert_scalar _assert_tensor_metadata _functional_assert_async _functional_assert_scalar "
        "sym_constrain_range sym_constrain_range_for_size _functional_sym_constrain_range "
        "_functional_sym_constrain_range_for_size _is_all_true _is_any_true _fused_sdp_choice _nested_tensor_size "
        "prim.device prim.layout prim.is_cuda profiler._record_function_enter profiler._record_function_enter_new "
        "profiler._record_function_exit"
    ),
}


def formulas() -> Iterator[OperatorFormula]:
    """Yield the operators that are known to be no work."""
    for reason, names in _REASONS.items():
        yield from offer(names, "ignored", reason=reason)

"""The named boundaries of the native Transformer formulas: where they stop, and what to do about it.

A call outside one of them is unavailable, never a number. This module knows neither torch nor pluggy.
"""

from __future__ import annotations

from typing import Final

import attrs

__all__ = ["BOUNDARIES", "Boundary", "Outside"]

#: Reason -> what lies outside, and the remedy. The reason is the diagnostic's machine-readable cause.
BOUNDARIES: Final = {
    # how the module is built
    "replaced_forward": "A native method that this call runs has been replaced, so the native formula no longer "
    "describes it. Restore it, or give an estimate for this module with custom_modules=.",
    "foreign_stage": "A stage is not exactly the torch.nn type the formula describes (subclasses and parametrized "
    "modules count as others). Use the native type, or give an estimate with custom_modules=.",
    "foreign_layer": "A stack holds something else than native layers. Use native layers, or give an estimate with "
    "custom_modules=.",
    "foreign_stack": "The encoder or decoder of this Transformer is not the native stack. Use nn.TransformerEncoder "
    "and nn.TransformerDecoder, or give an estimate with custom_modules=.",
    "foreign_activation": "The feed-forward activation is neither ReLU nor GELU. Use one of them, or give an estimate "
    "with custom_modules=.",
    "foreign_norm": "A normalization is neither nn.LayerNorm nor nn.Identity. Use one of them, or give an estimate "
    "with custom_modules=.",
    "norm_shape": "A LayerNorm does not normalize exactly the features of one token. Use nn.LayerNorm(embed_dim).",
    "stage_hooks": "A forward pre-hook on a stage can replace its arguments or recompute its parameters. Remove the "
    "hook for the scan (for weight_norm, spectral_norm or pruning: make it permanent).",
    "reparametrized": "A parameter of a stage is not a registered parameter but computed or stored elsewhere. Make it "
    "a plain parameter again.",
    "add_bias_kv": "add_bias_kv=True appends a learned key and value token, which the formula does not cover. Use "
    "add_bias_kv=False.",
    "add_zero_attn": "add_zero_attn=True appends a zero key and value token, which the formula does not cover. Use "
    "add_zero_attn=False.",
    "projection_shape": "A projection of the attention does not have the shape that embed_dim, kdim and vdim give it. "
    "Rebuild the module instead of resizing its parameters.",
    "feed_forward_shape": "The feed-forward parameters do not map embed_dim to one positive hidden width and back. "
    "Rebuild the layer instead of resizing its parameters.",
    "mixed_layouts": "Parts of this module disagree about batch_first. Build all of them with one layout.",
    "mixed_widths": "Parts of this module disagree about the embedding width. Build all of them with one width.",
    "empty_stack": "A stack without layers has nothing the formula describes. Use at least one layer.",
    # how it is called
    "training_mode": "The formulas describe evaluation calls, and a part of this module is in training mode. Call "
    "module.eval() first.",
    "functional_transform": "The call ran inside a torch.func transform such as vmap, which hides part of the work "
    "from the shapes. Scan the module outside of the transform.",
    "argument_type": "An argument has another type than the formula describes: tensors for inputs and masks, a bool "
    "for an option or hint.",
    "unbatched_input": "An input is not batched: the formula describes three dimensions. Add the batch dimension.",
    "empty_input": "An input has no batch entries or no tokens.",
    "input_shape": "The inputs do not fit the module and each other in batch, length or width.",
    "output_shape": "The output does not have the shape that the native stages give it, so other work was done.",
    "sparse_tensor": "An input, mask or parameter is not a dense strided tensor. Convert it with to_dense().",
    "nested_tensor": "An input, mask or parameter is a nested tensor. Pad it to a dense tensor.",
    "complex_tensor": "An input or parameter is complex. The formulas describe real floating-point calls.",
    "integer_tensor": "An input or parameter is not floating-point. The formulas describe real floating-point calls.",
    "tensor_subclass": "An input, mask or parameter is a tensor subclass, whose arithmetic is its own. Use plain "
    "tensors.",
    "mask_dtype": "A mask is neither boolean nor floating-point.",
    "mask_shape": "A mask has none of the documented shapes: (T, S) or (B·num_heads, T, S) for an attention mask, "
    "(B, S) for a key padding mask.",
    "causal_hint_without_mask": "A causal hint without its mask is ambiguous in PyTorch. Pass the mask as well.",
    "padding_with_nested_tensors": "With a padding mask this encoder may pack the tokens into a nested tensor "
    "(padding-based packing), and the dense estimate would describe another execution. Construct the encoder with "
    "nn.TransformerEncoder(..., enable_nested_tensor=False), and pass it to an nn.Transformer as custom_encoder=.",
    # what a formula leaves open
    "gelu": "Module FLOPs of native layers are defined for ReLU only. MACs and DMAs are complete.",
    # anything else
    "unreadable_call": "The call could not be read as a native one.",
}


@attrs.frozen
class Boundary:
    """Why a call is outside.

    Args:
        reason: a key of `BOUNDARIES`.
        message: where and why, and the remedy, in words.

    """

    reason: str
    message: str


class Outside(Exception):
    """Raised by a check; the guard turns it into a `Boundary`.

    Args:
        reason: a key of `BOUNDARIES`.
        what: what was found, in a few words.
        where: the path of the stage or the name of the argument, below the called module.

    """

    def __init__(self, reason: str, what: str, where: str = "") -> None:
        super().__init__(reason, what, where)
        self.reason = reason
        self.what = what
        self.where = where

    def within(self, name: str) -> Outside:
        """Return the same, found in the child `name`."""
        return Outside(self.reason, self.what, f"{name}.{self.where}" if self.where else name)

    @property
    def boundary(self) -> Boundary:
        """The finding for the caller."""
        where = f"{self.where}: " if self.where else ""
        return Boundary(self.reason, f"{where}{self.what}. {BOUNDARIES[self.reason]}")

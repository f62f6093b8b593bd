"""The Hugging Face callback in a real, tiny training run."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from torchscan import Complete  # noqa: E402
from torchscan.integrations.transformers import UtilizationCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

# Layers, width, feed-forward width, heads, vocabulary, tokens.
LAYERS, E, F, HEADS, VOCABULARY, TOKENS = 2, 16, 32, 2, 50, 6


def model():
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=E,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=F,
        max_position_embeddings=TOKENS,
    )
    return transformers.BertForSequenceClassification(config)


def macs(batch: int) -> int:
    """Forward multiply-accumulates, by hand."""
    rows = batch * TOKENS
    attention = 4 * rows * E * E + 2 * batch * TOKENS * TOKENS * E
    feed_forward = 2 * rows * E * F
    norm = 2 * rows * E  # squares and the affine weight
    layer = attention + feed_forward + 2 * norm
    pooler = batch * E * E
    classifier = batch * E * 2
    return LAYERS * layer + norm + pooler + classifier


def prepared(tmp_path, *, through_log: bool, accumulation: int = 1, rows: int = 8):
    torch.manual_seed(0)
    data = [
        {"input_ids": torch.randint(1, VOCABULARY, (TOKENS,)), "labels": torch.tensor(index % 2)}
        for index in range(rows)
    ]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=accumulation,
        num_train_epochs=1,
        logging_steps=2,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(model(), arguments, train_dataset=data)
    callback = UtilizationCallback(peak=1e12, log=trainer.log if through_log else None)
    trainer.add_callback(callback)
    return trainer, callback


def train(tmp_path, **options):
    trainer, callback = prepared(tmp_path, **options)
    trainer.train()
    return trainer, callback


def hooks(module):
    return [hook for part in module.modules() for hook in (*part._forward_pre_hooks, *part._forward_hooks)]


def test_a_training_that_raised_can_be_cleaned_up_after(tmp_path):
    trainer, callback = prepared(tmp_path, through_log=False)
    parameter = next(trainer.model.parameters())
    handle = parameter.register_hook(lambda gradient: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trainer.train()
    assert hooks(trainer.model)  # the trainer told nobody
    callback.close()
    assert hooks(trainer.model) == []
    callback.close()  # a second time does nothing
    # and without that, the next training does it
    with pytest.raises(ZeroDivisionError):
        trainer.train()
    handle.remove()
    trainer.train()
    assert hooks(trainer.model) == []
    assert callback.last.forward == Complete(macs(batch=2))


@pytest.mark.parametrize("through_log", [False, True])
def test_the_trainer_logs_count_and_rate(tmp_path, through_log, capfd):
    trainer, callback = train(tmp_path, through_log=through_log)
    entries = [entry for entry in trainer.state.log_history if "torchscan/step_seconds" in entry]
    # Four steps, logged every two; each is one batch of two rows.
    assert len(entries) >= 2
    for entry in entries[:2]:
        assert entry["torchscan/macs"] == macs(batch=2)
        assert entry["torchscan/utilization"] == pytest.approx(entry["torchscan/macs_per_second"] / 1e12)
    assert callback.last.forward == Complete(macs(batch=2))
    assert trainer.model.training
    assert not any(module._forward_pre_hooks for module in trainer.model.modules())


def test_a_step_of_accumulated_batches_counts_all_of_them(tmp_path):
    _, callback = train(tmp_path, through_log=False, accumulation=2)
    assert callback.last.calls == 2
    assert callback.last.forward == Complete(2 * macs(batch=2))


@pytest.mark.parametrize(("module", "library"), [("transformers", "transformers"), ("lightning", "lightning")])
def test_without_the_library_the_message_names_the_extra(module, library):
    program = (
        f"import sys; sys.modules['{library}'] = None; sys.modules['pytorch_lightning'] = None\n"
        f"try:\n    import torchscan.integrations.{module}\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert f"pip install 'torchscan[{module}]'" in done.stdout

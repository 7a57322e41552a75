"""Write ``data/training_code.npz``: what the model's own training code (torch) computes, for the tests to compare with.

Run once, by hand, where torch is installed (numpy, safetensors and tokenizers too):

    python make_fixture.py TRAINING_CODE MODEL

TRAINING_CODE is the folder that holds the package ``tinyspec``, MODEL the folder with ``target/``, ``dflash2/`` and
``eval_prompts.json``. Everything is computed in float32 from the released bfloat16 weights.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

MAX_NEW_TOKENS = 160
HIDDEN_OF = (0, 6, 30, 70)
"""Indices of the prompts whose hidden states are kept: short and long, English and Chinese."""


def main() -> None:
    """Compute and write the fixture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("training_code", type=Path)
    parser.add_argument("model", type=Path)
    args = parser.parse_args()
    sys.path.insert(0, str(args.training_code))

    import torch
    from safetensors.torch import load_file
    from tinyspec import decode, model
    from tinyspec.cfg import DraftCfg, TargetCfg

    torch.set_grad_enabled(False)
    files = [load_file(path) for path in sorted((args.model / "target").glob("*.safetensors"))]
    tensors = {name: value.float() for part in files for name, value in part.items()}
    target, mtp = model.Target(TargetCfg()).eval(), model.MTP(TargetCfg()).eval()
    body = {name: value for name, value in tensors.items() if not name.startswith("mtp.")}
    target.load_state_dict({name.replace("model.language_model.", "model."): value for name, value in body.items()})
    mtp.load_state_dict({name.removeprefix("mtp."): tensors[name] for name in tensors if name.startswith("mtp.")})
    draft = model.DFlash2(TargetCfg(), DraftCfg()).eval()
    draft.load_state_dict({k: v.float() for k, v in load_file(args.model / "dflash2" / "model.safetensors").items()})

    prompts = [row["ids"] for row in json.loads((args.model / "eval_prompts.json").read_text("utf-8"))]
    out: dict[str, np.ndarray] = {}
    for index in HIDDEN_OF:
        hidden, _ = target(torch.tensor([prompts[index]]))
        out[f"hidden_{index}"] = hidden[0].numpy()

    how = (MAX_NEW_TOKENS, "cpu", torch.float32)
    ids = decode.greedy(target, prompts, *how)
    out["greedy"] = np.array([token for row in ids for token in row], dtype=np.uint16)
    out["greedy_lengths"] = np.array([len(row) for row in ids], dtype=np.int32)
    for name, run, drafter in (("nextn", decode.spec_mtp, mtp), ("dflash", decode.spec_dflash, draft)):
        tokens, tally = run(target, drafter, prompts, *how)
        assert tokens == ids, f"{name} is not lossless in the training code"
        out[f"{name}_steps"] = tally.steps.numpy().astype(np.int32)
        out[f"{name}_gain"] = tally.gain.numpy().astype(np.int32)
    np.savez_compressed(Path(__file__).with_name("data") / "training_code.npz", **out)


if __name__ == "__main__":
    main()

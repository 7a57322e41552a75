"""Comparing one prompt with its golden, and deciding whether it may be written."""

from dataclasses import dataclass

from lossless.analysis import Analysis, Judged
from lossless.errors import UsageError
from lossless.golden.files import GoldenFile, GoldenOutput, Provenance, parse_golden
from lossless.record.plan import PLAIN
from lossless.record.store import RecordedPrompt
from lossless.suite.prepare import request_digest

ARGUMENTS = (
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "chunked_prefill_size",
    "disable_radix_cache",
    "enable_deterministic_inference",
    "kv_cache_dtype",
    "mamba_ssm_dtype",
    "page_size",
    "quantization",
    "sampling_backend",
    "tp_size",
)
"""Resolved arguments worth keeping in a golden: each can change the numbers."""


@dataclass(frozen=True, slots=True)
class GoldenCheck:
    """Goldens of one analyzed run."""

    analysis: Analysis
    strict: bool = False

    def blocked(self, prompt_id: str) -> tuple[str, ...]:
        """Why the prompt proves nothing and so may not be written: one line a failed control or pair. A divergence
        that the SGLang version is known for is told by :meth:`known`."""
        a = self.analysis
        found = [f"{c.scope}: {c.name}: {c.detail}" for c in a.controls if c.failure is not None]
        for variant in a.manifest.variants:
            judged = a.verdict(variant, prompt_id)
            if not judged.verdict.passed(strict=self.strict) and not a.is_known(judged):
                found.append(f"{variant}: {judged.verdict.label}: {judged.verdict.detail}")
        return tuple(dict.fromkeys(found))

    def unproven(self) -> list[str]:
        """The prompts that are blocked, but for those that the servers cannot be asked."""
        a = self.analysis
        return [p for p in a.prompts if a.inapplicable(p) is None and self.blocked(p)]

    def known(self, prompt_id: str) -> tuple[str, ...]:
        """Known issues of this SGLang version that make the prompt's pairs diverge: expected, but nothing proven."""
        a = self.analysis
        found = [v for v in a.manifest.variants if a.is_known(a.verdict(v, prompt_id))]
        return tuple(f"{v}: {a.known_issue(v, prompt_id)}" for v in found)

    def candidate(self, prompt_id: str) -> GoldenFile | None:
        """What would be written: the baseline's answer; None if there is none."""
        a = self.analysis
        prompt = a.prompts[prompt_id]
        said = a.baseline.transcript(PLAIN, prompt_id)
        if said is None:
            return None
        return GoldenFile(
            prompt=prompt_id,
            category=prompt.category,
            input=prompt.text,
            output=GoldenOutput(said.text, said.ids, said.finish.type, said.finish.matched),
            provenance=self.provenance(prompt),
        )

    def provenance(self, prompt: RecordedPrompt) -> Provenance:
        info, m = self.analysis.baseline.info, self.analysis.manifest
        version = str(info.get("version", "unknown"))
        reference = version.startswith("reference-")
        return Provenance(
            engine="reference" if reference else "sglang",
            version=version.removeprefix("reference-"),
            dtype=str(info.get("dtype", m.dtype)),
            model=m.model_digest,
            tokenizer=m.tokenizer_digest,
            prompt=request_digest(prompt),
            arguments={name: info[name] for name in ARGUMENTS if info.get(name) is not None},
        )

    def judge(self, golden: GoldenFile) -> Judged | None:
        """The golden as today's baseline sees it; None when it was recorded for another request."""
        prompt = self.analysis.prompts[golden.prompt]
        if golden.provenance.prompt != request_digest(prompt):
            return None
        return self.analysis.golden_verdict(golden.prompt, golden.golden)

    def holds(self, candidate: str, on_disk: str) -> bool:
        """Whether the golden on disk still holds: identical, or a near-tie as re-scored by today's baseline."""
        prompt_id = parse_golden(candidate, where="candidate").prompt
        try:
            golden = parse_golden(on_disk, where=f"{prompt_id}.json")
        except UsageError:
            return False
        if golden.prompt != prompt_id:
            return False
        judged = self.judge(golden)
        return judged is not None and judged.verdict.passed(strict=self.strict)

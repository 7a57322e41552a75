# mypy: ignore-errors
"""Run-time changes to SGLang, applied while its modules are imported.

texts  replaces source text before a module is compiled (sglang_cpu_texts.py).  Every entry
       must be found exactly `count` times; otherwise the import fails, so a different SGLang
       version is noticed.
AFTER  runs a function on a module right after it was executed, before anyone else can copy
       names out of it.

Only what stops the CPU path is touched: device checks, hard-coded "cuda", and Triton
kernels without a CPU variant.  Scheduling, drafting, verification and sampling are SGLang's.
"""

import functools
import importlib.abc
import importlib.machinery
import importlib.metadata
import sys

import sglang_cpu_texts


@functools.cache
def _texts():
    return sglang_cpu_texts.texts(importlib.metadata.version("sglang"))


AFTER = {}


def after(name):
    def deco(fn):
        AFTER[name] = fn
        return fn

    return deco


@after("sglang.srt.server_args")
def _(m):
    # the draft attention backends are those of the GPUs
    if "intel_amx" not in m.DRAFT_ATTENTION_BACKEND_CHOICES:
        m.add_draft_attention_backend_choices(["intel_amx"])


@after("sglang.kernels.ops.attention.fla.layernorm_gated")
def _(m):
    # take the CPU branch (fused_rmsnorm_gated_cpu) although there are no AMX kernels
    m._use_cpu = True


@after("sglang.kernels.ops.mamba.mamba_state_scatter_triton")
def _(m):
    import sglang_cpu_states as s

    for name in s.NAMES:
        assert hasattr(m, name), name
        setattr(m, name, getattr(s, name))


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname):
        text = _texts().get(fullname)
        if not text:
            return super().get_code(fullname)
        src = self.get_data(self.path).decode("utf-8")
        for old, new, count in text:
            found = src.count(old)
            if found != count:
                raise ImportError(f"{fullname}: expected {count} times, found {found}: {old!r} (other SGLang version?)")
            src = src.replace(old, new)
        return compile(src, self.path, "exec", dont_inherit=True)

    def exec_module(self, module):
        super().exec_module(module)
        fn = AFTER.get(module.__name__)
        if fn is not None:
            fn(module)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if not name.startswith("sglang.") or (name not in _texts() and name not in AFTER):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None:
            return spec
        spec.loader = _Loader(name, spec.origin)
        return spec


def install():
    if not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())

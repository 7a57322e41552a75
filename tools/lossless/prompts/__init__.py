"""The fixed prompt set, as data, and what turns it into token ids."""

from lossless.prompts.haystack import Haystack, LongContext
from lossless.prompts.loading import NAMES, load_prompts
from lossless.prompts.prompt import GROUPS, SUBSETS, Group, Message, Prompt, PromptSet, Subset
from lossless.prompts.tokenizer import Tokenizer

__all__ = [
    "GROUPS",
    "NAMES",
    "SUBSETS",
    "Group",
    "Haystack",
    "LongContext",
    "Message",
    "Prompt",
    "PromptSet",
    "Subset",
    "Tokenizer",
    "load_prompts",
]

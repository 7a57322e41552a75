"""SGLang's native HTTP protocol: typed requests and answers, and the client that carries them."""

from lossless.protocol.answers import Answer, FinishReason, TokenLogprob
from lossless.protocol.client import Client
from lossless.protocol.requests import GenerateRequest, Sampling

__all__ = ["Answer", "Client", "FinishReason", "GenerateRequest", "Sampling", "TokenLogprob"]

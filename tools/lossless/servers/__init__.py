"""Servers under test: launched as child processes or attached to, behind one small interface."""

from lossless.servers.argv import server_argv, server_env
from lossless.servers.base import Server
from lossless.servers.make import make_server
from lossless.servers.pair import (
    ConfigProblem,
    PairFindings,
    PairProblem,
    ServerFacts,
    algorithm_of,
    compare_pair,
    config_problems,
    pair_problems,
)

__all__ = [
    "ConfigProblem",
    "PairFindings",
    "PairProblem",
    "Server",
    "ServerFacts",
    "algorithm_of",
    "compare_pair",
    "config_problems",
    "make_server",
    "pair_problems",
    "server_argv",
    "server_env",
]

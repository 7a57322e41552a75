"""Profiles: which model, which servers, which flags. A profile is data; adding an algorithm means adding an entry."""

from lossless.profiles.loader import load_profile, shipped_names, shipped_profiles
from lossless.profiles.overrides import profile_digest, with_overrides
from lossless.profiles.profile import BASELINE, Baseline, EpsilonBounds, FlagValue, Kind, Profile, Variant

__all__ = [
    "BASELINE",
    "Baseline",
    "EpsilonBounds",
    "FlagValue",
    "Kind",
    "Profile",
    "Variant",
    "load_profile",
    "profile_digest",
    "shipped_names",
    "shipped_profiles",
    "with_overrides",
]

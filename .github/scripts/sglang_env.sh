#!/usr/bin/env bash
# sglang_env.sh VERSION FOLDER: a virtual environment with that SGLang; prints its Python. Built once, then reused.
# LOSSLESS_SGLANG_PYTHON names one that has SGLang already; then nothing is installed.
set -euo pipefail

if [[ -n ${LOSSLESS_SGLANG_PYTHON:-} ]]; then
  printf '%s\n' "$LOSSLESS_SGLANG_PYTHON"
  exit
fi
version=${1:?usage: sglang_env.sh VERSION FOLDER} folder=${2:?usage: sglang_env.sh VERSION FOLDER}
if [[ ! $version =~ ^[0-9]+(\.[0-9]+)*((a|b|rc|\.post|\.dev)[0-9]+)*$ ]]; then
  printf 'no version: %q; expected one such as 0.5.19\n' "$version" >&2
  exit 2
fi
mkdir -p "$folder"
environment=$folder/sglang-$version
exec 9>"$environment.lock"
flock 9 # several jobs may share this machine
if [[ ! -e $environment/.complete ]]; then
  rm -rf "$environment"
  "${PYTHON:-python3}" -m venv "$environment"
  "$environment/bin/python" -m pip install -q "sglang==$version" >&2
  touch "$environment/.complete"
fi
printf '%s\n' "$environment/bin/python"

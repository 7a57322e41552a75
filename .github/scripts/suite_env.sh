#!/usr/bin/env bash
# suite_env.sh FOLDER: a virtual environment with this checkout's suite; prints its Python.
# LOSSLESS_PYTHON names one that has it already; then nothing is installed.
set -euo pipefail

if [[ -n ${LOSSLESS_PYTHON:-} ]]; then
  printf '%s\n' "$LOSSLESS_PYTHON"
  exit
fi
environment=${1:?usage: suite_env.sh FOLDER}/suite
"${PYTHON:-python3}" -m venv "$environment"
"$environment/bin/python" -m pip install -q -c .ci/constraints.txt -e . >&2
printf '%s\n' "$environment/bin/python"

#!/usr/bin/env bash
# install.sh VENV [VERSION]: an unmodified SGLang that serves small models on a CPU, for the tests in tests/sglang.
# Only imports of GPU packages are replaced (inert_imports.py); nothing of SGLang is changed. About 1.6 GB.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
venv=${1:?usage: install.sh VENV [VERSION]}
version=${2:-0.5.23}
python=${PYTHON:-python3.11}

# SGLang pins transformers to what it was built against; these are the pairs that were tested.
case $version in
  0.5.11) transformers=5.6.0 tokenizers=0.22.2 ;;
  0.5.12 | 0.5.13 | 0.5.14) transformers=5.8.1 tokenizers=0.22.2 ;;
  0.5.15 | 0.5.16 | 0.5.17 | 0.5.18) transformers=5.12.1 tokenizers=0.22.2 ;;
  *) transformers=5.19.0 tokenizers=0.23.2 ;;
esac

"$python" -m venv "$venv"
pip=("$venv/bin/python" -m pip install -q --disable-pip-version-check)
"${pip[@]}" -r "$here/requirements.txt" "transformers==$transformers" "tokenizers==$tokenizers"
# Their dependencies are for CUDA.
"${pip[@]}" --no-deps xgrammar "sglang==$version"
packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
cp "$here/inert_imports.py" "$packages/"
echo 'import inert_imports' > "$packages/inert_imports.pth"
echo "SGLang $version for the CPU is in $venv"

#!/usr/bin/env bash
# The gate of this sample repository, run as its workflow would run it, in a copy that is a git repository.
# Usage: run.sh [FOLDER]; FOLDER (default: a temporary one) gets the copy and the artefacts.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
gate="${ASSAY_GATE:-$here/../../action/gate.sh}"
place="${1:-$(mktemp -d)}"
work="$place/repository"
mkdir -p "$work"
cp -R "$here"/{assay.toml,policy.toml,.gitignore,.github,kernels} "$work/"
cd "$work"
failures=0

git init --quiet --initial-branch main
commit() { git add --all && git -c user.name=sample -c user.email=sample@example.org commit --quiet --message "$1"; }
commit "Six kernels"

step() { # step NAME STATUS [VARIABLE=VALUE]...: one run of the gate, and the status that it has to end with
  local name="$1" wanted="$2" status=0
  shift 2
  echo "--- $name"
  env GITHUB_STEP_SUMMARY="$place/$name.step-summary.md" GITHUB_OUTPUT="$place/$name.output" \
    ASSAY_OUT="$place/$name" ASSAY_STORE="$place/store" "$@" bash "$gate" || status=$?
  if [[ "$status" != "$wanted" ]]; then
    echo "run.sh: $name ended with status $status, not $wanted" >&2
    failures=$((failures + 1))
  fi
}
expect() { # expect FILE TEXT: the file has to hold the text
  if ! grep -q -- "$2" "$1"; then
    echo "run.sh: $1 does not hold: $2" >&2
    failures=$((failures + 1))
  fi
}

# the first run: two kernels are wrong, and the one that is not to be released is drawn by the sample
step everything 1
for artefact in gate.json junit.xml assay.sarif summary.md html/index.html; do
  [[ -s "$place/everything/$artefact" ]] || { echo "run.sh: no $artefact" >&2; failures=$((failures + 1)); }
done
expect "$place/everything.step-summary.md" "BLOCKED"
expect "$place/everything.output" "status=1"
expect "$place/everything/junit.xml" 'failures="2"'
expect "$place/everything/assay.sarif" "kernels/relu/kernel.py"

# one of the two is repaired on a branch; the gate looks at that one alone
git switch --quiet --create repair
sed -i 's/tl.where(x > 0, x, 0.0)/tl.where(x < 0, 0.0, x)/' kernels/relu/kernel.py
commit "Keep NaN"
step repaired 0 ASSAY_SINCE=main
expect "$place/repaired/summary.md" "1 may merge, 5 unchanged"

# everything again: what was judged is taken from the store, and the other one still blocks
step again 1
expect "$place/again/summary.md" "5 may merge, 1 blocked"
expect "$place/again/summary.md" "from the store"

# a policy that wants labels of a GPU leaves what is released undecided here
sed 's/gpu = "none"/gpu = "release"/' policy.toml > "$place/gpu.toml"
step wants-a-gpu 3 ASSAY_POLICY="$place/gpu.toml" ASSAY_PATHS=kernels/scale_add

# a key that nobody knows is bad input, told with the nearest right one
sed -i 's/^share/shares/' assay.toml
step bad-settings 2 2> "$place/bad-settings.err"
expect "$place/bad-settings.err" "did you mean .share"

if [[ "$failures" != 0 ]]; then
  echo "run.sh: $failures expectations not met" >&2
  exit 1
fi
echo "run.sh: everything as expected"

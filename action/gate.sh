#!/usr/bin/env bash
# Runs `assay gate` as a step of a workflow: what it is given comes from the environment, so that no text of a
# pull request is ever read by a shell. Used by action.yml; runs anywhere for a try.
#
#   ASSAY_PATHS      what to gate, one path a line (default: .)
#   ASSAY_POLICY     policy file (default: the one that assay.toml names)
#   ASSAY_SINCE      look only at what changed since this revision (default: look at everything)
#   ASSAY_STORE      where verdicts are kept (default: .assay)
#   ASSAY_OUT        folder for the artefacts (default: assay-report)
#   ASSAY_SHARE, ASSAY_SAMPLE_SEED, ASSAY_DEVICE, ASSAY_TIER, ASSAY_WORKERS   options of the same name
#
# Exit status: that of the gate. $GITHUB_STEP_SUMMARY and $GITHUB_OUTPUT are written where they are set.
set -euo pipefail

out="${ASSAY_OUT:-assay-report}"
mkdir -p "$out"
rm -f "$out"/{gate.json,junit.xml,assay.sarif,summary.md}
arguments=()
while IFS= read -r path; do
  [[ -n "$path" ]] && arguments+=("$path")
done <<< "${ASSAY_PATHS:-.}"

option() { # option NAME VALUE: leaves it out when there is no value
  if [[ -n "$2" ]]; then options+=("$1" "$2"); fi
}
options=()
option --policy "${ASSAY_POLICY:-}"
option --changed-since "${ASSAY_SINCE:-}"
option --store "${ASSAY_STORE:-.assay}"
option --share "${ASSAY_SHARE:-}"
option --sample-seed "${ASSAY_SAMPLE_SEED:-}"
option --device "${ASSAY_DEVICE:-}"
option --tier "${ASSAY_TIER:-}"
option --workers "${ASSAY_WORKERS:-}"

status=0
assay gate "${options[@]}" \
  --json "$out/gate.json" --junit "$out/junit.xml" --sarif "$out/assay.sarif" --markdown "$out/summary.md" \
  --html-dir "$out/html" -- "${arguments[@]}" || status=$?

if [[ -n "${GITHUB_STEP_SUMMARY:-}" && -f "$out/summary.md" ]]; then
  cat "$out/summary.md" >> "$GITHUB_STEP_SUMMARY"
fi
if [[ -n "${GITHUB_OUTPUT:-}" ]]; then
  echo "status=$status" >> "$GITHUB_OUTPUT"
  if [[ -f "$out/assay.sarif" ]]; then echo "sarif=$out/assay.sarif" >> "$GITHUB_OUTPUT"; fi
fi
exit "$status"

#!/usr/bin/env bash
# Makes a searchable site of README, guides and reference pages in build/site (mkdocs; the extra `site`). Nothing of it comes from elsewhere.
# It fails where a link between pages leads nowhere, and where mkdocs.yml does not name a page; links to source files are left as they are.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mkdocs=.venv/bin/mkdocs
[[ -x $mkdocs ]] || mkdocs=$(command -v mkdocs) || { echo "error: mkdocs is missing; pip install -e '.[site]'" >&2; exit 1; }
out=${1:-build/site}
pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
# Pages lie as in the repository, so that their links hold.
mkdir "$pages/docs"
cp README.md CHANGELOG.md CONTRIBUTING.md "$pages"
cp -r docs/. "$pages/docs"
log=$(SITE_PAGES=$pages SITE_OUT=$(realpath -m "$out") NO_MKDOCS_2_WARNING=1 "$mkdocs" build --clean --config-file mkdocs.yml 2>&1) || { echo "$log" >&2; exit 1; }
if omitted=$(grep -E '^  - .*\.md$' <<<"$log"); then
  echo "error: mkdocs.yml does not name these pages:" >&2
  echo "$omitted" >&2
  exit 1
fi
if lost=$(grep -E "contains (a link|an unrecognized relative link) '[^']*\.md(#[^']*)?'" <<<"$log"); then
  echo "error: links of these pages lead nowhere:" >&2
  echo "$lost" >&2
  exit 1
fi
echo "$out/index.html"

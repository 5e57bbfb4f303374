# browser.sh -- finds a headless Chromium for scripts that source this file in the tree's root.
# Makes a work folder $W, removed at exit. Sets $CHROME, or ends the script with one line.
chrome=
for c in chromium-headless-shell chromium google-chrome chrome; do
    command -v "$c" >/dev/null 2>&1 && chrome=$c && break
done
[ -n "$chrome" ] || { echo "$(basename "$0"): skipped: no headless Chromium"; exit 0; }
W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"' EXIT
# Uses a separate HOME, because a running Chromium locks the profile in HOME, and some
# users have no HOME.
unset XDG_CONFIG_HOME XDG_CACHE_HOME
HOME=$W CHROME="$chrome --headless --no-sandbox --disable-gpu --hide-scrollbars"
CHROME="$CHROME --allow-file-access-from-files --disable-dev-shm-usage"
export HOME CHROME

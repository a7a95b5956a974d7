# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the other scripts share. Sourced, never run. Sets `root`, the folder of the checkout.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

build_packages=(g++ meson ninja-build pkg-config libboost1.81-dev libboost-program-options1.81-dev
    libfmt-dev doctest-dev)
demo_packages=(php8.2-cgi php8.2-fpm php8.2-opcache nginx curl)
test_packages=(php8.2-cgi php8.2-fpm php8.2-cli php8.2-opcache nginx haproxy lighttpd apache2-bin
    python3-pytest strace curl)
# For scripts/build-lsphp, which Debian has no package of.
lsphp_packages=(gcc g++ make pkg-config xz-utils dpkg-dev ca-certificates)
lint_packages=(clang-format python3)

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# --- packages ---------------------------------------------------------------------------------

# need_packages NAME...: installs those that are missing and changes nothing when none is. No service of a
# newly installed package is started, now or at the next boot; what was installed before keeps its settings.
need_packages() {
    local missing=() package
    for package in "$@"; do
        is_installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null ||
        die "missing: ${missing[*]}; there is no apt-get here: use Debian 12, or install their counterparts"
    [ "$(id -u)" -eq 0 ] ||
        die "missing packages; run as root: apt-get install --no-install-recommends ${missing[*]}"
    printf 'installing %s\n' "${missing[*]}"
    mkdir -p "$root/.cache"
    (install_without_services "${missing[@]}") || exit 1
}

is_installed() {
    [[ $(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null) == ?i* ]]
}

installed_packages() {
    dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' | sed -n 's/^.i *//p' | LC_ALL=C sort -u
}

has_candidate() {
    [[ $(LC_ALL=C apt-cache policy "$1" 2>/dev/null) == *'Candidate: '[!\(]* ]]
}

policy_file=/usr/sbin/policy-rc.d
policy_mark='put here by the scripts of cede while they install packages'

# Runs in a subshell of its own, so that its traps are its own. A signal is acted on only after apt-get has
# ended: taking the policy away earlier would let the rest of the installation start services.
install_without_services() {
    # A directory can be locked without creating a file; dpkg's own locks are files inside it.
    exec 9</var/lib/dpkg && flock 9
    packages_before=$(installed_packages)
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'keep_services_off; remove_policy' EXIT
    # One of ours that is already there is left over from a run that was killed: we hold the lock.
    if [ ! -e "$policy_file" ] || grep -qsF "$policy_mark" "$policy_file"; then
        printf '#!/bin/sh\n# %s\nexit 101\n' "$policy_mark" >"$policy_file"
        chmod 755 "$policy_file"
    fi
    refresh_lists_for "$@"
    run_apt install --no-install-recommends "$@" && return
    # Lists that are older than the archive name versions that it has no more.
    run_apt update && run_apt install --no-install-recommends "$@" && return
    tail -n 20 "$root/.cache/apt.log" >&2
    die "apt-get could not install $*; its messages are above and in $root/.cache/apt.log"
}

remove_policy() {
    if grep -qsF "$policy_mark" "$policy_file"; then
        rm -f "$policy_file"
    fi
}

refresh_lists_for() {
    local package
    for package in "$@"; do
        has_candidate "$package" && continue
        run_apt update || break
        break
    done
    for package in "$@"; do
        has_candidate "$package" ||
            die "no source in /etc/apt offers $package: this needs Debian 12 (bookworm) main and a working network"
    done
}

# DPkg::Lock::Timeout waits for dpkg's lock only; the locks of the lists and of the archive are retried here.
run_apt() {
    local log=$root/.cache/apt.log attempt
    for attempt in $(seq 120); do
        if DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -q -y -o DPkg::Lock::Timeout=600 "$@" \
            >"$log" 2>&1 </dev/null 9<&-; then
            return 0
        fi
        grep -qE 'Could not get lock|Unable to (acquire|lock)' "$log" || return 1
        [ "$attempt" -ne 1 ] || printf 'another program is using apt; waiting for it\n'
        sleep 5
    done
    return 1
}

# Takes the new packages' units out of the boot. Packages of priority required and important (systemd itself
# comes with php8.2-fpm on a machine without it) belong to the system and keep their defaults.
keep_services_off() {
    local package unit script
    for package in $(LC_ALL=C comm -13 <(printf '%s\n' "$packages_before") <(installed_packages)); do
        case $(dpkg-query -W -f '${Priority}\n' "$package" | head -n 1) in
        required | important) continue ;;
        esac
        for unit in $(dpkg -L "$package" |
            sed -nE 's,^(/usr)?/lib/systemd/system/([^/@]+\.(service|socket|timer|path))$,\2,p'); do
            disable_unit "$unit"
        done
        for script in $(dpkg -L "$package" | sed -n 's,^/etc/init\.d/,,p'); do
            update-rc.d "$script" disable >/dev/null 2>&1 || true
        done
    done
}

disable_unit() {
    if command -v systemctl >/dev/null; then
        systemctl --quiet disable "$1" >/dev/null 2>&1 || true
    elif command -v deb-systemd-helper >/dev/null; then
        deb-systemd-helper --quiet disable "$1" >/dev/null 2>&1 || true
    fi
}

# --- build ------------------------------------------------------------------------------------

# configure [FOLDER [MESON-OPTION...]]: makes FOLDER (default build, relative to the checkout) ready for ninja. A
# folder that was set up by these scripts is set up anew when its options or the place of the checkout changed;
# one that somebody set up by hand is used as it is.
configure() {
    local folder=$root/${1:-build} stamp wanted
    [ $# -eq 0 ] || shift
    stamp=$folder/.set-up-by-scripts
    wanted="$root $*"
    need_packages "${build_packages[@]}"
    if [ -f "$folder/build.ninja" ]; then
        if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" = "$wanted" ]; then
            return 0
        fi
    fi
    if [ -f "$folder/meson-private/coredata.dat" ]; then
        meson setup --wipe "$@" "$folder" "$root" || return 1
    else
        meson setup "$@" "$folder" "$root" || return 1
    fi
    printf '%s\n' "$wanted" >"$stamp"
}

# build [FOLDER [MESON-OPTION...]]: configures FOLDER where needed and builds everything in it.
build() {
    configure "$@" || return 1
    ninja -C "$root/${1:-build}"
}

# build_product: what an administrator needs of build/, without the tests.
build_product() {
    configure build || return 1
    ninja -C "$root/build" cede libcede-agent.so
}

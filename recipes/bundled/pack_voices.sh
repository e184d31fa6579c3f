#!/usr/bin/env bash
# Packs the synthesisers and their voices into one file that runs where nothing can be installed.
#
#   recipes/bundled/pack_voices.sh OUT.tar.xz
#
# Needs Debian 12 on x86-64 (apt-get, dpkg-deb), pip and xz; nothing is installed. Every package is
# pinned by version and SHA-256 in voices.lock beside this script. The pack holds all shared
# libraries down to the C library, since the machine that trains may have others. Unpacked:
#
#   voices/bin/festival         run through voices/lib/ld-linux-x86-64.so.2
#   voices/lib/                 what it links to
#   voices/festival/            its Scheme files, the CMU lexicon and the voice us_slt_hts
#   voices/flite/               libflite and its voices, loaded into Python
#   voices/espeak/              libespeak-ng and its English data, loaded into Python
#   voices/copyright/           each package's copyright file
set -euo pipefail

out=$(realpath -m "${1:?usage: pack_voices.sh OUT.tar.xz}")
lock=$(realpath "$(dirname "$0")/voices.lock")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir debs tree voices voices/bin voices/lib voices/flite voices/espeak voices/copyright

# A line of the lock: SHA-256, kind (deb or wheel), name, version.
entries() { awk -v kind="$1" '$2 == kind {print $3 "'"$2"'" $4}' "$lock"; }
# shellcheck disable=SC2046  # names and versions have no spaces
(cd debs && apt-get -qq -o APT::Sandbox::User=root download $(entries deb =))
# shellcheck disable=SC2046
pip -q download --no-deps --only-binary :all: --platform manylinux2014_x86_64 -d debs \
    $(entries wheel ==)
# Each checksum of the lock must be that of one file, and each file must have one.
diff <(grep -v '^#' "$lock" | cut -d' ' -f1 | sort) <(sha256sum debs/* | cut -d' ' -f1 | sort) ||
    { echo "the packages fetched are not those of voices.lock" >&2 && exit 1; }
for file in debs/*.deb; do dpkg-deb -x "$file" tree; done
for file in debs/*.whl; do unzip -qo "$file" -d tree/wheel; done
for file in tree/usr/share/doc/*/copyright; do
    cp -L "$file" "voices/copyright/$(basename "$(dirname "$file")")" || true
done

cp tree/usr/bin/festival voices/bin/
cp -r tree/usr/share/festival voices/festival
# The libraries festival needs, found with its own loader and nothing of this machine.
paths=$(find "$PWD/tree" -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
loader=$PWD/tree/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2
"$loader" --library-path "$paths" --list tree/usr/bin/festival |
    awk '$3 ~ /^\// {print $3}' | while read -r lib; do
        case $lib in "$PWD"/tree/*) cp -L "$lib" voices/lib/ ;;
            *) echo "not in the lock: $lib" >&2 && exit 1 ;; esac
    done
cp -L "$loader" voices/lib/ld-linux-x86-64.so.2
for name in flite flite_usenglish flite_cmulex flite_cmu_us_{awb,kal16,rms,slt}; do
    cp -L "$(find tree -name "lib$name.so.1")" "voices/flite/lib$name.so.1"
done
cp -L "$(find tree -name libasound.so.2)" voices/flite/
cp tree/wheel/espeakng_loader/libespeak-ng.so voices/espeak/
data=tree/wheel/espeakng_loader/espeak-ng-data
mkdir -p voices/espeak/espeak-ng-data/lang/gmw
cp "$data"/{phondata,phonindex,phontab,intonations,en_dict} voices/espeak/espeak-ng-data/
cp "$data"/lang/gmw/en* voices/espeak/espeak-ng-data/lang/gmw/
cp -r "$data/voices" voices/espeak/espeak-ng-data/
cp "$lock" voices/

tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf - voices | xz -9e -T1 > "$out"
ls -l "$out"

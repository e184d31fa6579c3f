#!/usr/bin/env bash
# Packs the synthesisers and their voices into one file that runs where nothing can be installed.
#
#   recipes/bundled/pack_voices.sh OUT.tar.xz [amd64|arm64]
#
# Needs Debian 12 (apt-get, dpkg-deb), pip, readelf, unzip and xz, on any processor; nothing is
# installed. The pack is for this machine's processor or the one that is named (for another one, the
# package sources must not be bound to theirs by [arch=...]). Every package is pinned by
# version and SHA-256 in voices-PROCESSOR.lock next to this script. The pack holds all shared
# libraries down to the C library, since the machine that trains may have others. Unpacked:
#
#   voices/bin/festival         run through voices/lib/ld.so
#   voices/lib/                 what it links to
#   voices/festival/            its Scheme files, the CMU lexicon and the voice us_slt_hts
#   voices/flite/               libflite and its voices, loaded into Python
#   voices/espeak/              libespeak-ng and its English data, loaded into Python
#   voices/copyright/           each package's copyright file
set -euo pipefail

out=$(realpath -m "${1:?usage: pack_voices.sh OUT.tar.xz [amd64|arm64]}")
processor=${2:-$(dpkg --print-architecture)}
case $processor in
    amd64) platform=manylinux2014_x86_64 loader=ld-linux-x86-64.so.2 ;;
    arm64) platform=manylinux_2_28_aarch64 loader=ld-linux-aarch64.so.1 ;;
    *) echo "no voices are locked for $processor: amd64 or arm64" >&2 && exit 1 ;;
esac
for tool in apt-get dpkg-deb pip readelf unzip xz; do
    command -v "$tool" > /dev/null || { echo "needs $tool, which is not here" >&2 && exit 1; }
done
lock=$(realpath "$(dirname "$0")/voices-$processor.lock")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir debs tree voices voices/bin voices/lib voices/flite voices/espeak voices/copyright

# A line of the lock: SHA-256, kind (deb or wheel), name, version.
entries() { awk -v kind="$1" '$2 == kind {print $3 "'"$2"'" $4}' "$lock"; }
# Package lists of this processor, in a folder of their own: the machine's may be of another one.
mkdir -p apt/lists/partial apt/cache/archives/partial
apt=(apt-get -qq -o APT::Sandbox::User=root -o "APT::Architecture=$processor"
    -o "APT::Architectures::=$processor" -o "Dir::State::lists=$work/apt/lists"
    -o Dir::State::status=/dev/null -o "Dir::Cache=$work/apt/cache" -o APT::Update::Error-Mode=any)
"${apt[@]}" update
# shellcheck disable=SC2046  # names and versions have no spaces
(cd debs && "${apt[@]}" download $(entries deb =))
# shellcheck disable=SC2046
pip -q download --no-deps --only-binary :all: --platform "$platform" -d debs $(entries wheel ==)
# Each checksum of the lock must be that of one file, and each file must have one.
diff <(grep -v '^#' "$lock" | cut -d' ' -f1 | sort) <(sha256sum debs/* | cut -d' ' -f1 | sort) ||
    { echo "the packages fetched are not those of $lock" >&2 && exit 1; }
for file in debs/*.deb; do dpkg-deb -x "$file" tree; done
for file in debs/*.whl; do unzip -qo "$file" -d tree/wheel; done
for file in tree/usr/share/doc/*/copyright; do
    cp -L "$file" "voices/copyright/$(basename "$(dirname "$file")")" || true
done

cp tree/usr/bin/festival voices/bin/
cp -r tree/usr/share/festival voices/festival
# The libraries festival needs, and those they need; read, not run: this may be another processor.
copy_needed() {
    local needed name file
    needed=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p')
    for name in $needed; do
        [ -e "voices/lib/$name" ] && continue
        # In the processor's own folders: a link elsewhere may lead out of the tree.
        file=$(find tree -path '*-linux-gnu/*' -name "$name" ! -lname '/*' -print -quit)
        [ -n "$file" ] || { echo "not in the lock: $name" >&2 && exit 1; }
        cp -L "$file" "voices/lib/$name"
        copy_needed "voices/lib/$name"
    done
}
copy_needed voices/bin/festival
mv "voices/lib/$loader" voices/lib/ld.so
ln -s ld.so "voices/lib/$loader"
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
cp "$lock" voices/voices.lock

tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf - voices | xz -9e -T1 > "$out"
ls -l "$out"

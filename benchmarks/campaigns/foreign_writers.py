"""Files that programs of others write on demand: every program, with its options, and how to install it.

    written(directory)  →  (files of 21 programs, {"vips": "not installed: apt-get install libvips-tools"})

A command is one line, such as `-i {rgb8.png} -pix_fmt gray16be {out.png}`. Its source is a picture or sound of our own,
with what a format may change: gradients, noise, transparency, silence, full scale.
"""

from __future__ import annotations

import functools
import itertools
import shlex
import shutil
import subprocess
import wave
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from benchmarks.campaigns.foreign_corpora import ForeignFile


class Writer(NamedTuple):
    """A program, its package of Debian, the kind of its files, and commands.

    `{in}` is a source, named by `.name`; `{out}` a file with this suffix. Each `[a|b]` stands for both.
    """

    program: str
    package: str
    kind: str
    commands: tuple[str, ...]


IMAGES = (
    Writer("convert-im6.q16", "imagemagick", "image", (
        "{rgb8.png} -quality [10|75|100] -sampling-factor [4:4:4|4:2:0|4:2:2|4:1:1|4:4:0] {out.jpg}",
        "{rgb8.png} -interlace JPEG -quality 80 -sampling-factor [4:4:4|4:2:0] {out.jpg}",
        "{rgb8.png} -colorspace [Gray|CMYK] {out.jpg}",
        "{grey16.png} -depth [8|16] {out.jpg}",
        "{rgb8.png} -orient [TopLeft|TopRight|BottomRight|BottomLeft|LeftTop|RightTop|RightBottom|LeftBottom] "
        "{out.[jpg|tif]}",
        "{[rgb8|rgba8|rgb16|grey8|grey16].png} -interlace [None|PNG] {out.png}",
        "{rgb8.png} -interlace PNG -type Palette -colors [2|4|16|200] {out.png}",
        "{rgba8.png} -type [PaletteAlpha|GrayscaleAlpha|TrueColorAlpha] -depth [8|16] {out.png}",
        "{grey8.png} -type Grayscale -depth [1|2|4|8|16] {out.png}",
        "{rgb8.png} -define png:format=[png8|png24|png32|png48|png64] {out.png}",
        "{rgb8.png} -gamma 0.5 -density 72 -define png:include-chunk=all {out.png}",
        "{[rgb8|rgb16|grey8|grey16].png} -compress [None|LZW|Zip|RLE|ZSTD|LZMA] {out.tif}",
        "{[rgb8|grey8].png} -compress [JPEG|WebP] {out.tif}",
        "{[rgb8|grey16|rgb16].png} -define tiff:tile-geometry=16x16 -compress [LZW|Zip] {out.tif}",
        "{[rgb8|rgb16].png} -interlace Plane -compress [None|LZW] {out.tif}",
        "{[rgb8|rgb16|grey16].png} -define tiff:endian=[msb|lsb] -define tiff:predictor=[1|2] -compress Zip {out.tif}",
        "{grey8.png} -monochrome -compress [None|Group4|Fax|LZW] -define tiff:fill-order=[msb|lsb] {out.tif}",
        "{rgb8.png} -type Palette -colors [2|16|256] -compress LZW {out.tif}",
        "{rgba8.png} -define tiff:alpha=[associated|unassociated] {out.tif}",
        "{rgb8.png} -colorspace [CMYK|LAB|YCbCr] {out.tif}",
        "{[rgb8|grey8].png} -depth 32 -define quantum:format=[floating-point|unsigned] {out.tif}",
        "{rgb8.png} -define tiff:rows-per-strip=[1|3|1000] {out.tif}",
        "{rgb8.png} {out.tiff64:tif}",
        "{[rgb8|rgba8|grey8].png} {out.[bmp2:bmp|bmp3:bmp|bmp]}",
        "{rgb8.png} -type Palette -colors [2|16|256] -compress [None|RLE] {out.bmp}",
        "{[rgb8|grey8].png} -interlace [None|GIF] -colors [2|256] {out.gif}",
        "{rgba8.png} {out.gif}",
        "-delay 10 {rgb8.png} {grey8.png} {out.[gif|tif]}",
        "{[rgb8|rgba8].png} -define webp:lossless=[true|false] {out.webp}",
    )),
    Writer("gm", "graphicsmagick", "image", (
        "convert {[rgb8|rgba8|rgb16|grey8|grey16].png} {out.[png|tif|bmp|webp]}",
        "convert {[rgb8|grey8].png} -interlace Line {out.[jpg|png]}",
        "convert {rgb8.png} -colorspace CMYK {out.[jpg|tif]}",
    )),
    Writer("vips", "libvips-tools", "image", (
        "tiffsave {[rgb8|grey8].png} {out.tif} --compression [none|jpeg|deflate|packbits|lzw|webp|zstd] --tile",
        "tiffsave {[rgb16|grey16|rgba8].png} {out.tif} --compression [none|deflate|lzw] --predictor [none|horizontal]",
        "tiffsave {grey8.png} {out.tif} --bitdepth [1|2|4] --compression [none|deflate]",
        "tiffsave {grey8.png} {out.tif} --bitdepth 1 --compression ccittfax4 --miniswhite",
        "tiffsave {rgb8.png} {out.tif} --pyramid --tile --bigtiff",
        "tiffsave {rgb8.png} {out.tif} --subifd --pyramid --tile --tile-width 16 --tile-height 16",
        "pngsave {[rgb8|rgba8|grey8].png} {out.png} --interlace --compression [0|9] --filter [none|all]",
        "pngsave {[rgb16|grey16].png} {out.png} --interlace",
        "pngsave {[rgb8|rgba8|grey8].png} {out.png} --palette --bitdepth [1|2|4|8]",
        "jpegsave {[rgb8|grey8].png} {out.jpg} --interlace --subsample-mode [on|off] --restart-interval [0|3]",
        "jpegsave {rgb8.png} {out.jpg} --optimize-coding --Q [1|100]",
        "webpsave {[rgb8|rgba8].png} {out.webp} --[lossless|near-lossless|smart-subsample]",
        "webpsave {rgba8.png} {out.webp} --alpha-q 10 --Q 30",
        "heifsave {[rgb8|rgba8].png} {out.avif} --compression av1 --[lossless|effort=1]",
        "heifsave {rgb8.png} {out.heic} --compression hevc",
        "gifsave {[rgb8|rgba8].png} {out.gif} --dither [0|1] --interlace",
    )),
    Writer("ffmpeg", "ffmpeg", "image", (
        "-i {rgba8.png} -pix_fmt [gray|gray16be|monob|pal8|rgb24|rgb48be|rgba|rgba64be|ya8|ya16be] {out.png}",
        "-i {rgb8.png} -pix_fmt [rgb24|gray|rgb48be] -pred [none|sub|up|avg|paeth|mixed] {out.png}",
        "-i {rgb8.png} -pix_fmt [yuvj420p|yuvj422p|yuvj444p] -q:v [1|31] {out.jpg}",
        "-i {rgba8.png} -pix_fmt [bgr24|bgra|rgb555le|rgb565le|rgb444le|gray|pal8|monob] {out.bmp}",
        "-i {rgba8.png} -compression_algo [raw|packbits|lzw|deflate] -pix_fmt [rgb24|gray|gray16le|rgb48le|rgba|pal8|"
        "monow|ya8|rgba64le] {out.tif}",
        "-i {rgb8.png} -compression_algo lzw -pix_fmt [yuv420p|yuv444p|yuv422p] {out.tif}",
        "-i {rgba8.png} {out.gif}",
        "-i {rgba8.png} -f apng {out.png}",
        "-i {rgba8.png} -c:v libwebp -lossless [0|1] {out.webp}",
        "-stream_loop 3 -i {rgba8.png} -c:v libwebp_anim -lossless 1 {out.webp}",
    )),
    Writer("pnmtopng", "netpbm", "image", (
        "[-interlace|-force|-transparent=black|-gamma=0.5|-compression=0] {[rgb8|rgb16].ppm} > {out.png}",
        "[-interlace|-force] {[grey8|grey16].ppm} > {out.png}",
    )),
    Writer("pnmtojpeg", "netpbm", "image", (
        "-[progressive|optimize|greyscale|dct=fast|dct=float|restart=3|quality=1|smooth=50|density=1x1] {rgb8.ppm} "
        "> {out.jpg}",
    )),
    Writer("pnmtotiff", "netpbm", "image", (
        "-[none|packbits|lzw|flate|adobeflate] -[msb2lsb|lsb2msb] {[rgb8|grey8|rgb16].ppm} > {out.tif}",
        "-truecolor -predictor=2 -lzw {rgb8.ppm} > {out.tif}",
    )),
    Writer("ppmtobmp", "netpbm", "image", ("-[windows|os2] {[rgb8|grey8].ppm} > {out.bmp}",)),
    Writer("cwebp", "webp", "image", (
        "-quiet {[rgb8|rgba8].png} -[lossless|jpeg_like|sharp_yuv|noalpha|exact] -o {out.webp}",
        "-quiet {[rgb8|rgba8].png} -q [0|50|100] -alpha_q [0|100] -metadata all -o {out.webp}",
        "-quiet {[rgb8|rgba8].png} -near_lossless [0|60] -o {out.webp}",
    )),
    Writer("img2webp", "webp", "image", ("-loop 0 -[lossy|lossless|mixed] {rgb8.png} {grey8.png} -o {out.webp}",)),
    Writer("heif-enc", "libheif-examples", "image", (
        "{[rgb8|rgba8|grey8].png} [-A|-L|-q 50|-p chroma=444|--no-alpha] -o {out.[avif|heic]}",
        "{[rgb16|grey16].png} -b [10|12] -o {out.[avif|heic]}",
        "{rgb8.png} {grey8.png} -t 16 -o {out.heic}",
    )),
    Writer("avifenc", "libavif-bin", "image", (
        "--irot [0|1|2|3] {rgb8.png} {out.avif}",
        "--imir [0|1] --irot [1|3] {rgb8.png} {out.avif}",
        "-y [444|422|420|400] -d [8|10|12] {[rgb8|rgba8|rgb16].png} {out.avif}",
        "-[l|p] {rgba8.png} {out.avif}",
        "-r [limited|full] {rgb8.png} {out.avif}",
    )),
    Writer("tiffcp", "libtiff-tools", "image", (
        "-c [none|lzw:2|zip:2|packbits|jpeg:90|zstd|lzma] {rgb8.tif} {out.tif}",
        "[-p separate|-t -w 32 -l 32|-B|-L|-8|-r 1] -c lzw {[rgb8|grey16|rgb16].tif} {out.tif}",
        "-p separate -t -w 16 -l 16 -c zip {[rgb8|rgb16|rgba8].tif} {out.tif}",
    )),
    Writer("exiftool", "libimage-exiftool-perl", "image", (
        *(f"-n -Orientation=[1|2|3|4|5|6|7|8] -o {{out.{ending}}} {{rgb8.{ending}}}"
          for ending in ("jpg", "png", "tif", "webp")),
        "-XMP-tiff:Orientation#=[3|6] -o {out.jpg} {rgb8.jpg}",
    )),
    Writer("optipng", "optipng", "image", ("-quiet -i [0|1] -out {out.png} {[rgb8|rgb16|grey16].png}",)),
    Writer("gifsicle", "gifsicle", "image", ("[--interlace|--careful|-O3|--colors 4] -o {out.gif} {rgb8.gif}",)),
)  # fmt: skip

SOUNDS = (
    Writer("ffmpeg", "ffmpeg", "sound", (
        "-i {[mono|stereo].wav} -c:a [pcm_u8|pcm_s16le|pcm_s24le|pcm_s32le|pcm_f32le|pcm_f64le|pcm_alaw|pcm_mulaw|"
        "adpcm_ms|adpcm_ima_wav] {out.wav}",
        "-i {[mono|stereo|six].wav} -rf64 always -c:a [pcm_s16le|pcm_f32le] {out.wav}",
        "-i {six.wav} -c:a [pcm_s16le|pcm_s24le] {out.[wav|flac|aiff|w64]}",
        "-i {stereo.wav} -c:a pcm_[s16be|s24be|s8|mulaw|f32be] {out.[aiff|au|caf]}",
        "-i {stereo.wav} -fflags +bitexact -write_bext 1 -metadata title=be {out.wav}",
        "-i {stereo.wav} -f wav - > {out.wav}",
        "-i {stereo.wav} -f flac - > {out.flac}",
        "-i {[mono|stereo].wav} -c:a flac -compression_level [0|8|12] -sample_fmt [s16|s32] {out.flac}",
        "-i {[mono|stereo].wav} -c:a libmp3lame -b:a [32k|128k|320k] -ar [16000|44100] {out.mp3}",
        "-i {[mono|stereo].wav} -c:a libmp3lame -q:a [0|5|9] -id3v2_version [3|4] {out.mp3}",
        "-i {stereo.wav} -c:a libmp3lame -b:a 128k -[write_xing 0|reservoir 0|joint_stereo 0|abr 1] {out.mp3}",
        "-i {[mono|stereo].wav} -c:a libvorbis -q:a [0|5|10] {out.ogg}",
        "-i {[mono|stereo|six].wav} -c:a libopus -b:a [16k|128k] -frame_duration [2.5|20|60] {out.opus}",
        "-i {stereo.wav} -c:a flac -f ogg {out.oga}",
        "-i {stereo.wav} -c:a [aac|alac] {out.m4a}",
        "-i {stereo.wav} -c:a [libopus|libvorbis] {out.webm}",
        "-i {stereo.wav} -c:a wmav2 {out.wma}",
        "-i {stereo.wav} -c:a wavpack {out.wv}",
    )),
    Writer("sox", "sox libsox-fmt-all", "sound", (
        "{[mono|stereo].wav} -e [signed-integer|floating-point] -b 32 {out.[wav|aiff|au|caf|w64]}",
        "{[mono|stereo].wav} -e signed-integer -b [16|24] {out.[wav|aiff|au|caf|w64|sph|flac]}",
        "{mono.wav} -e [mu-law|a-law|gsm-full-rate|ima-adpcm|ms-adpcm] {out.wav}",
        "{[mono|stereo].wav} -b 8 {out.[wav|aiff|au|sph]}",
        "{[mono|stereo].wav} -r [8000|22050|48000|96000] {out.[wav|flac]}",
        "{stereo.wav} -C [0|8] {out.flac}",
        "{stereo.wav} -C [-1|3|10] {out.ogg}",
        "{stereo.wav} -C [32|128.2|-4.2] {out.mp3}",
        "{six.wav} {out.[wav|flac|ogg|aifc|au]}",
        "{stereo.wav} -t wav - > {out.wav}",
    )),
    Writer("flac", "flac", "sound", (
        "-s -[0|5|8] {[mono|stereo|six].wav} -o {out.flac}",
        "-s [--no-padding|--lax -b 300|--no-seektable|--no-md5-sum|--ogg] {stereo.wav} -o {out.flac}",
        "-s -c {stereo.wav} > {out.flac}",
    )),
    Writer("lame", "lame", "sound", (
        "--quiet -b [32|128|320] -m [s|j|f|m] {stereo.wav} {out.mp3}",
        "--quiet -V [0|4|9] [-t|-T|-p|--noreplaygain] {stereo.wav} {out.mp3}",
        "--quiet --abr 100 --resample [8|11.025|16|24|32|48] {mono.wav} {out.mp3}",
        "--quiet --freeformat -b [64|400] {stereo.wav} {out.mp3}",
        "--quiet --tt title [--id3v1-only|--id3v2-only|--add-id3v2] --pad-id3v2-size 5000 {stereo.wav} {out.mp3}",
    )),
    Writer("oggenc", "vorbis-tools", "sound", (
        "-Q -q [-1|3|10] {[mono|stereo|six].wav} -o {out.ogg}",
        "-Q --managed -b 96 --discard-comments {stereo.wav} -o {out.ogg}",
    )),
    Writer("opusenc", "opus-tools", "sound", (
        "--quiet --bitrate [16|96|256] --framesize [2.5|10|20|60] {stereo.wav} {out.opus}",
        "--quiet --[hard-cbr|cvbr|vbr] --padding 0 --max-delay [0|1000] {[mono|six].wav} {out.opus}",
    )),
)  # fmt: skip

TARS = (
    Writer("tar", "tar", "tar", (
        "--format=[v7|oldgnu|gnu|ustar|posix] -C tree -cf {out.tar} [.|samples]",
        "--format=[gnu|posix] -C tree -cf {out.tar} [long|sparse|links|odd]",
        "--format=[gnu|posix] --sparse --sparse-version=[0.0|0.1|1.0] -C tree -cf {out.tar} sparse",
        "-b [1|20|64] -C tree -cf {out.tar} samples",
        "--format=gnu -V label -C tree -cf {out.tar} samples",
        "--format=gnu --listed-incremental=/dev/null -C tree -cf {out.tar} samples",
        "--format=posix --pax-option=[delete=mtime|globexthdr.name=g,comment=be|exthdr.name=%d/x/%f] -C tree "
        "-cf {out.tar} long",
        "--format=posix --xattrs --numeric-owner --mtime=@-5 -C tree -cf {out.tar} samples",
        "-z -C tree -cf {out.tar.gz} samples",
        "-j -C tree -cf {out.tar.bz2} samples",
        "--hard-dereference -h -C tree -cf {out.tar} links",
    )),
    Writer("bsdtar", "libarchive-tools", "tar", (
        "--format [pax|paxr|ustar|gnutar|v7] -C tree -cf {out.tar} [.|samples]",
        "--format [pax|gnutar] -C tree -cf {out.tar} [long|sparse|links|odd]",
        "--zstd -C tree -cf {out.tar.zst} samples",
    )),
)  # fmt: skip


WRITERS = (*IMAGES, *SOUNDS, *TARS)


def written(directory: Path) -> tuple[list[ForeignFile], dict[str, str]]:
    """The files that all writers make, in order; and of each program its outcome in words: how many files, how many
    commands it refused, or how to install it.
    """
    sources = directory / "sources"
    _write_pictures(sources)
    _write_sounds(sources)
    _write_tree(directory / "tree")
    files, outcomes = list[ForeignFile](), dict[str, str]()
    for writer in WRITERS:
        name = f"{writer.program} ({writer.kind})"
        if shutil.which(writer.program) is None:
            outcomes[name] = f"not installed: apt-get install {writer.package}"
            continue
        lines = [line for command in writer.commands for line in _each(command)]
        out = directory / writer.kind / writer.program
        out.mkdir(parents=True)
        run = functools.partial(_run, writer, directory=directory, out=out)
        with ThreadPoolExecutor(2) as pool:
            there = [made for made in pool.map(run, lines, itertools.count()) if made is not None]
        files += there
        refused = len(lines) - len(there)
        outcomes[name] = f"{len(there)} files" + (f", {refused} commands refused" if refused else "")
    return files, outcomes


def _each(command: str) -> Iterator[str]:
    """`-b [1|2]` → `-b 1`, `-b 2`."""
    before, opened, rest = command.partition("[")
    if not opened:
        yield command
        return
    choices, _, after = rest.partition("]")
    for choice, tail in itertools.product(choices.split("|"), _each(after)):
        yield f"{before}{choice}{tail}"


def _run(writer: Writer, line: str, number: int, *, directory: Path, out: Path) -> ForeignFile | None:
    """Runs a command; None if the program has no such option or writes nothing. It is named by its options."""
    arguments, named, target = [], list[str](), out / "none"
    for word in shlex.split(line):
        if word.startswith("{out."):
            suffix = word[5:-1]
            form, _, ending = suffix.rpartition(":")
            target = out / f"{number:03}.{ending}"
            word = f"{form}:{target}" if form else str(target)
        elif word.startswith("{"):
            named.append(word[1:-1])
            word = str(directory / "sources" / word[1:-1])
        else:
            named.append(word)
        arguments.append(word)
    if writer.program == "ffmpeg":
        arguments = ["-v", "error", "-y", *arguments]
    to_pipe = arguments[-2] == ">"
    if to_pipe:
        arguments = arguments[:-2]
    done = subprocess.run(
        [writer.program, *arguments], cwd=directory, capture_output=True, timeout=60, stdin=subprocess.DEVNULL
    )
    if to_pipe and done.stdout:
        target.write_bytes(done.stdout)
    first = next(
        (each for each in (target, target.with_name(f"{target.stem}-0{target.suffix}")) if each.exists()), None
    )
    if first is None or not first.stat().st_size or (done.returncode and writer.kind != "tar"):
        return None
    return ForeignFile(f"{writer.program}/{' '.join(named)} {first.name}", writer.kind, first)


# Sources.


def _write_pictures(directory: Path) -> None:
    directory.mkdir(parents=True)
    rng = np.random.default_rng(7)
    high, wide = 47, 61  # no multiple of a block or a tile
    ramp = np.linspace(0, 65535, wide)[None, :, None] * np.linspace(0.2, 1, high)[:, None, None] * [1, 0.7, 0.4]
    deep = np.clip(ramp + rng.normal(0, 3000, (high, wide, 3)), 0, 65535).astype(np.uint16)
    flat = (deep >> 8).astype(np.uint8)
    alpha = np.tile(np.array([0, 64, 200, 255], np.uint8), (high, wide // 4 + 1))[:, :wide]
    pictures: dict[str, np.ndarray] = {"rgb8": flat, "grey8": flat[:, :, 0], "grey16": deep[:, :, 0]}
    pictures["rgba8"] = np.dstack([flat, alpha])
    for name, pixels in pictures.items():
        Image.fromarray(pixels).save(directory / f"{name}.png")
        if name != "grey16":
            Image.fromarray(pixels).save(directory / f"{name}.tif")
    import cv2

    for ending in ("png", "tif"):
        cv2.imwrite(str(directory / f"rgb16.{ending}"), deep[:, :, ::-1])
        cv2.imwrite(str(directory / f"grey16.{ending}"), deep[:, :, 0])
    for name, pixels in {**pictures, "rgb16": deep}.items():
        if name == "rgba8":
            continue
        form, most = ("P6" if pixels.ndim == 3 else "P5"), 65535 if pixels.dtype == np.uint16 else 255
        header = f"{form}\n{wide} {high}\n{most}\n".encode()
        (directory / f"{name}.ppm").write_bytes(header + pixels.astype(pixels.dtype.newbyteorder(">")).tobytes())
    for ending in ("jpg", "webp", "gif"):
        Image.fromarray(flat).save(directory / f"rgb8.{ending}")


def _write_sounds(directory: Path) -> None:
    rng = np.random.default_rng(7)
    times = np.arange(44_100 * 2) / 44_100
    sweep = np.sin(2 * np.pi * (100 + 2000 * times) * times) * np.minimum(1, times * 4)
    for name, channels in {"mono": 1, "stereo": 2, "six": 6}.items():
        samples = np.stack([np.roll(sweep, 500 * each) for each in range(channels)], 1) * 32767
        samples[:3], samples[-500:] = [[32767] * channels, [-32768] * channels, [0] * channels], 0
        samples[2000:9000] += rng.normal(0, 300, (7000, channels))
        with wave.open(str(directory / f"{name}.wav"), "wb") as file:
            file.setnchannels(channels)
            file.setsampwidth(2)
            file.setframerate(44_100)
            file.writeframes(np.clip(samples, -32768, 32767).astype("<i2").tobytes())


def _write_tree(tree: Path) -> None:
    """Folders: samples, names that are long or odd, holes, links."""
    for name in ("samples", "long", "sparse", "links", "odd"):
        (tree / name).mkdir(parents=True)
    for number in range(5):
        (tree / f"samples/{number}.txt").write_text(f"to be {number}\n" * number)
        (tree / f"samples/{number}.cls").write_text(str(number))
    (tree / "samples/5.json").write_text('{"a": 1}')
    deep = tree / "long" / ("d" * 60) / ("e" * 90)
    deep.mkdir(parents=True)
    for number in range(3):
        (deep / f"{number}{'f' * 90}.txt").write_text("deep")
    with open(tree / "sparse/a.bin", "wb") as file:
        for at in (0, 1 << 20, 3 << 20):
            file.seek(at)
            file.write(b"x" * 5000)
        file.truncate(4 << 20)
    (tree / "sparse/b.txt").write_text("after")
    (tree / "links/a.txt").write_text("a")
    (tree / "links/b.txt").symlink_to("a.txt")
    (tree / "links/c.txt").hardlink_to(tree / "links/a.txt")
    (tree / "links/d.txt").write_text("d")
    for name in (
        "caf\u00e9.txt",
        "a b.txt",
        "semi;colon.txt",
        "new\nline.txt",
        ".hidden.txt",
        "no_suffix",
        "two.dots.txt",
    ):
        (tree / "odd" / name).write_text(name)
    (tree / "odd/empty.txt").touch()

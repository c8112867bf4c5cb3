"""Records what Hugging Face's image processor makes of pictures of many sizes and formats.

Usage: python3 resize_fixture.py OUT.json      (needs numpy, Pillow, torch, torchvision, transformers)

engine/media/patches_test.cpp holds the engine's own decoders and resampling against the record. Large
pictures are drawn from a formula that the test knows too; small ones are stored as files.
"""
import base64
import io
import json
import struct
import sys
import zlib

import numpy as np
import PIL
import torchvision
import transformers
from PIL import Image, ImageOps
from transformers import Qwen2VLImageProcessor

MIN_PIXELS, MAX_PIXELS = 4096, 1048576
SAMPLES = 300

DRAWN_SIZES = [
    (64, 64), (96, 64), (100, 71), (71, 100), (33, 33), (17, 90), (90, 17), (1, 1), (2, 3), (3, 200),
    (200, 3), (5, 1000), (1000, 5), (31, 31), (32, 32), (48, 48), (47, 49), (80, 112), (112, 80),
    (160, 224), (224, 160), (127, 129), (250, 250), (255, 257), (300, 200), (199, 301), (333, 77),
    (77, 333), (400, 400), (401, 399), (512, 384), (500, 333), (640, 480), (479, 641), (800, 50),
    (50, 800), (1000, 700), (1024, 1024), (1025, 1023), (1300, 900), (900, 1301), (2000, 100),
    (100, 2000), (1920, 1080), (16, 16), (24, 40),
]


def drawn(width, height, seed):
    """uint8 [height, width, 3]: a slope, an edge and hashed noise, all in 32-bit integers."""
    y, x, c = np.meshgrid(np.arange(height, dtype=np.uint64), np.arange(width, dtype=np.uint64),
                          np.arange(3, dtype=np.uint64), indexing="ij")
    mask = np.uint64(0xFFFFFFFF)
    noise = (x * np.uint64(73856093) + y * np.uint64(19349663)
             + (c + np.uint64(seed)) * np.uint64(83492791)) & mask
    noise = (noise ^ (noise >> np.uint64(15))) * np.uint64(0x2C1B3C6D) & mask
    noise = (noise >> np.uint64(12)) & np.uint64(255)
    slope = (x * np.uint64(3) + y * np.uint64(5) + c * np.uint64(60)) % np.uint64(256)
    edge = np.where((x // np.uint64(9) + y // np.uint64(7)) % np.uint64(2) == 0,
                    np.uint64(255), np.uint64(0))
    return ((slope * np.uint64(2) + noise + edge) // np.uint64(4)).astype(np.uint8)


def png_16(array):
    """A PNG with 16 bits a channel, which Pillow cannot write."""
    wide = array.astype(np.uint16) * 256 + 77
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in wide)
    height, width = array.shape[:2]

    def chunk(name, data):
        return (struct.pack(">I", len(data)) + name + data
                + struct.pack(">I", zlib.crc32(name + data)))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def exif(orientation):
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags.tobytes()


def files():
    """(name, bytes, lossy): lossy decoders of other versions may differ by a code."""
    rgb = Image.fromarray(drawn(70, 45, 5))
    alpha = rgb.copy()
    alpha.putalpha(Image.fromarray(drawn(70, 45, 9)[:, :, 0]))
    yield "png-rgb", saved(rgb, "PNG"), False
    yield "png-rgba", saved(alpha, "PNG"), False
    yield "png-grey", saved(rgb.convert("L"), "PNG"), False
    yield "png-grey-alpha", saved(alpha.convert("LA"), "PNG"), False
    yield "png-palette", saved(rgb.quantize(32), "PNG"), False
    yield "png-one-bit", saved(rgb.convert("1"), "PNG"), False
    yield "png-16", png_16(drawn(40, 50, 6)), False
    for orientation in range(1, 9):
        yield f"png-exif-{orientation}", saved(rgb, "PNG", exif=exif(orientation)), False
    for name, options in (("444", dict(subsampling=0)), ("422", dict(subsampling=1)),
                          ("420", dict(subsampling=2)), ("progressive", dict(progressive=True))):
        yield f"jpeg-{name}", saved(rgb, "JPEG", quality=80, **options), True
    yield "jpeg-grey", saved(rgb.convert("L"), "JPEG", quality=80), True
    yield "jpeg-cmyk", saved(rgb.convert("CMYK"), "JPEG", quality=90), True
    for orientation in (3, 6, 8):
        yield f"jpeg-exif-{orientation}", saved(rgb, "JPEG", quality=80, exif=exif(orientation)), True
    yield "webp-lossless", saved(rgb, "WEBP", lossless=True), False
    yield "webp-lossless-alpha", saved(alpha, "WEBP", lossless=True, exact=True), False
    yield "webp-lossy", saved(rgb, "WEBP", quality=80), True
    yield "webp-exif-6", saved(rgb, "WEBP", lossless=True, exif=exif(6)), False


def checksum(codes):
    value = 0
    for code in codes.tolist():
        value = (value * 1099511628211 + code) & 0xFFFFFFFFFFFFFFFF
    return str(value)


def record(processor, name, image):
    result = processor(images=[image], return_tensors="np")
    values = np.asarray(result["pixel_values"], dtype=np.float64).reshape(-1)
    codes = np.rint((values + 1) * 127.5).astype(np.int64)
    stride = max(1, len(codes) // SAMPLES) | 1
    return dict(name=name, grid=np.asarray(result["image_grid_thw"])[0].tolist(), stride=stride,
                codes=codes[::stride].tolist(), checksum=checksum(codes))


def main():
    processor = Qwen2VLImageProcessor(
        patch_size=16, temporal_patch_size=2, merge_size=2, image_mean=[0.5] * 3, image_std=[0.5] * 3,
        size={"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS})
    cases = []
    for seed, (width, height) in enumerate(DRAWN_SIZES):
        entry = record(processor, f"drawn-{width}x{height}", Image.fromarray(drawn(width, height, seed)))
        cases.append(dict(entry, drawn=[width, height, seed], lossy=False))
    for name, data, lossy in files():
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
        entry = record(processor, name, image)
        cases.append(dict(entry, file=base64.b64encode(data).decode(), lossy=lossy))
    made_with = dict(transformers=transformers.__version__, torchvision=torchvision.__version__,
                     pillow=PIL.__version__)
    fixture = dict(made_with=made_with, min_pixels=MIN_PIXELS, max_pixels=MAX_PIXELS, cases=cases)
    with open(sys.argv[1], "w") as out:
        json.dump(fixture, out, separators=(",", ":"))
        out.write("\n")
    print(f"{len(cases)} cases, {made_with}")


if __name__ == "__main__":
    main()

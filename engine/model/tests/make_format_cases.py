"""Writes matrices in every weight format with the values that the format's definition gives them.

Usage: make_format_cases.py OUT.safetensors

An independent decoder: standard library only, written from the definitions of the formats. Values
are exact products in float64, rounded once to float32. Tensors CASE.SUFFIX are the stored parts,
CASE.expected the values; CASE starts with the name of the format.
"""
import json
import random
import struct
import sys

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
E2M1 += [-v for v in E2M1]
AWQ_NIBBLE_OF_COLUMN = [0, 4, 1, 5, 2, 6, 3, 7]
BYTES = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "U8": 1, "I32": 4, "I64": 8}

rng = random.Random(20)
tensors = {}


def e4m3(code):
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = (code >> 3) & 15, code & 7
    if exponent == 0:
        return sign * mantissa * 2.0**-9
    return sign * (1 + mantissa / 8) * 2.0 ** (exponent - 7)


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def bf16_bits(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def pack(dtype, values):
    if dtype == "BF16":
        return struct.pack(f"<{len(values)}H", *map(bf16_bits, values))
    letter = {"F32": "f", "F16": "e", "I32": "I", "I64": "q"}.get(dtype, "B")
    return struct.pack(f"<{len(values)}{letter}", *values)


def as_stored(dtype, values):
    """The values that `dtype` holds for `values`."""
    data = pack(dtype, values)
    if dtype == "BF16":
        bits = struct.unpack(f"<{len(values)}H", data)
        return [struct.unpack("<f", struct.pack("<I", b << 16))[0] for b in bits]
    return list(struct.unpack(f"<{len(values)}{ {'F32': 'f', 'F16': 'e'}[dtype] }", data))


def add(name, dtype, shape, values):
    data = pack(dtype, values)
    count = 1
    for size in shape:
        count *= size
    assert len(data) == count * BYTES[dtype], name
    tensors[name] = (dtype, shape, data)


def expect(case, n_rows, n_cols, value):
    add(case + ".expected", "F32", [n_rows, n_cols],
        [f32(value(n, k)) for n in range(n_rows) for k in range(n_cols)])


def codes_with_every_value(count, values):
    """Every value at least once, then random ones."""
    values = list(values)
    codes = values + [rng.choice(values) for _ in range(count - len(values))]
    rng.shuffle(codes)
    return codes


def scales(count, dtype, low=-20, high=4):
    """Powers, odd values, the smallest and largest that occur, zero."""
    edge = [0.0, 2.0**-14, 1.0, 448.0] + ([-0.75, 2.0**-24, 65504.0] if dtype == "F16" else [-0.75])
    values = edge + [rng.uniform(0.5, 2) * 2.0 ** rng.uniform(low, high) for _ in range(count)]
    return as_stored(dtype, values[:count])


def plain_cases():
    for dtype in ("BF16", "F16", "F32"):
        values = [rng.gauss(0, 1) for _ in range(6 * 32 - 3)] + [0.0, -0.0, 2.0**-24]
        values = as_stored(dtype, values)
        add(f"plain.{dtype}.weight", dtype, [6, 32], values)
        expect(f"plain.{dtype}", 6, 32, lambda n, k: values[n * 32 + k])


def fp8_codes(n_rows, n_cols):
    finite = [c for c in range(256) if c & 0x7F != 0x7F]
    return codes_with_every_value(n_rows * n_cols, finite)


def fp8_cases():
    n_rows, n_cols = 24, 32
    for name, shape in (("tensor.rank0", []), ("tensor.rank1", [1])):
        codes = fp8_codes(n_rows, n_cols)
        scale = f32(0.00317)
        add(f"fp8-{name}.weight", "F8_E4M3", [n_rows, n_cols], codes)
        add(f"fp8-{name}.weight_scale", "F32", shape, [scale])
        expect(f"fp8-{name}", n_rows, n_cols, lambda n, k: e4m3(codes[n * n_cols + k]) * scale)
    for dtype, shape in (("F32", [n_rows, 1]), ("BF16", [n_rows, 1]), ("BF16", [n_rows])):
        case = f"fp8-channel.{dtype}.rank{len(shape)}"
        codes = fp8_codes(n_rows, n_cols)
        rows = scales(n_rows, dtype)
        add(case + ".weight", "F8_E4M3", [n_rows, n_cols], codes)
        add(case + ".weight_scale", dtype, shape, rows)
        expect(case, n_rows, n_cols, lambda n, k: e4m3(codes[n * n_cols + k]) * rows[n])
    for dtype in ("BF16", "F32"):  # ragged: a second block of 8 rows and 32 columns
        n_rows, n_cols = 136, 160
        case = f"fp8-block.{dtype}"
        codes = fp8_codes(n_rows, n_cols)
        blocks = scales(4, dtype)
        add(case + ".weight", "F8_E4M3", [n_rows, n_cols], codes)
        add(case + ".weight_scale_inv", dtype, [2, 2], blocks)
        expect(case, n_rows, n_cols,
               lambda n, k: e4m3(codes[n * n_cols + k]) * blocks[n // 128 * 2 + k // 128])


def nvfp4_cases():
    n_rows, n_cols = 16, 128
    for style, codes_name, global_name in (("modelopt", "weight", "weight_scale_2"),
                                           ("ct", "weight_packed", "weight_global_scale")):
        case = f"nvfp4-{style}.all"
        packed = codes_with_every_value(n_rows * n_cols // 2, range(256))
        block = codes_with_every_value(n_rows * n_cols // 16, range(0x7F))
        given = f32(0.0123) if style == "modelopt" else f32(2688 / 3.7)
        factor = given if style == "modelopt" else f32(1.0 / given)
        add(f"{case}.{codes_name}", "U8", [n_rows, n_cols // 2], packed)
        add(f"{case}.weight_scale", "F8_E4M3", [n_rows, n_cols // 16], block)
        add(f"{case}.{global_name}", "F32", [1] if style == "ct" else [], [given])
        add(f"{case}.input_{'global_' if style == 'ct' else ''}scale", "F32", [1], [0.5])

        def value(n, k):
            byte = packed[n * n_cols // 2 + k // 2]
            code = byte & 15 if k % 2 == 0 else byte >> 4
            return E2M1[code] * e4m3(block[n * n_cols // 16 + k // 16]) * factor

        expect(case, n_rows, n_cols, value)


def int4_values(n_rows, n_cols, group, dtype):
    q = [[rng.randrange(16) for _ in range(n_cols)] for _ in range(n_rows)]
    q[0][:16] = list(range(16))
    s = scales(n_rows * (n_cols // group), dtype)
    return q, [s[n * (n_cols // group):(n + 1) * (n_cols // group)] for n in range(n_rows)]


def words(nibbles):
    """Eight nibbles a word, the first one lowest."""
    return [sum(v << (4 * j) for j, v in enumerate(nibbles[i:i + 8]))
            for i in range(0, len(nibbles), 8)]


def compressed_int4_cases():
    for dtype, group, zeroed in (("BF16", 32, False), ("F16", 64, False), ("F16", 32, True)):
        n_rows, n_cols = 16, 128
        n_groups = n_cols // group
        case = f"int4-ct.{dtype}.{'zeros' if zeroed else 'symmetric'}"
        q, s = int4_values(n_rows, n_cols, group, dtype)
        zero = [[(n * n_groups + g) % 16 if zeroed else 8 for g in range(n_groups)]
                for n in range(n_rows)]
        add(case + ".weight_packed", "I32", [n_rows, n_cols // 8],
            [w for row in q for w in words(row)])
        add(case + ".weight_scale", dtype, [n_rows, n_groups], [v for row in s for v in row])
        add(case + ".weight_shape", "I64", [2], [n_rows, n_cols])
        if zeroed:
            columns = [words([zero[n][g] for n in range(n_rows)]) for g in range(n_groups)]
            add(case + ".weight_zero_point", "I32", [n_rows // 8, n_groups],
                [columns[g][w] for w in range(n_rows // 8) for g in range(n_groups)])
            add(case + ".weight_g_idx", "I32", [n_cols], [k // group for k in range(n_cols)])
        expect(case, n_rows, n_cols,
               lambda n, k: (q[n][k] - zero[n][k // group]) * s[n][k // group])


def gptq_and_awq_cases():
    n_rows, n_cols, group = 32, 128, 64
    n_groups = n_cols // group
    for style in ("gptq", "gptq-without-g_idx", "awq"):
        is_awq = style == "awq"
        case = style + ".all"
        q, s = int4_values(n_rows, n_cols, group, "F16")
        zero = [[(n + 16 * g) % 16 for g in range(n_groups)] for n in range(n_rows)]  # all 16
        if is_awq:
            def interleaved(line):
                out = []
                for c in range(0, n_rows, 8):
                    nibbles = [0] * 8
                    for j in range(8):
                        nibbles[AWQ_NIBBLE_OF_COLUMN[j]] = line[c + j]
                    out += words(nibbles)
                return out
            add(case + ".qweight", "I32", [n_cols, n_rows // 8],
                [w for k in range(n_cols) for w in interleaved([q[n][k] for n in range(n_rows)])])
            pack_zeros = interleaved
            offset = 0
        else:
            add(case + ".qweight", "I32", [n_cols // 8, n_rows],
                [sum(q[n][8 * r + j] << (4 * j) for j in range(8))
                 for r in range(n_cols // 8) for n in range(n_rows)])
            pack_zeros = words
            offset = 1
        add(case + ".qzeros", "I32", [n_groups, n_rows // 8],
            [w for g in range(n_groups) for w in pack_zeros([zero[n][g] for n in range(n_rows)])])
        add(case + ".scales", "F16", [n_groups, n_rows],
            [s[n][g] for g in range(n_groups) for n in range(n_rows)])
        if style == "gptq":
            add(case + ".g_idx", "I32", [n_cols], [k // group for k in range(n_cols)])
        expect(case, n_rows, n_cols,
               lambda n, k: (q[n][k] - (zero[n][k // group] + offset)) * s[n][k // group])


def write(path):
    header, offset = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            out.write(data)


plain_cases()
fp8_cases()
nvfp4_cases()
compressed_int4_cases()
gptq_and_awq_cases()
write(sys.argv[1])

import struct
import zlib

values = [3, 7, 4, 9, 6]
width, height, bar = 200, 120, 40
rows = []
for y in range(height):
    row = bytearray([0])
    for x in range(width):
        filled = height - y <= values[x // bar] * 12 and x % bar > 5
        row += bytes([40, 90, 200] if filled else [255, 255, 255])
    rows.append(bytes(row))


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
with open("/results/chart.png", "wb") as file:
    file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header))
    file.write(chunk(b"IDAT", zlib.compress(b"".join(rows))) + chunk(b"IEND", b""))

import asyncio
import json

from tools.files import list_directory, read_text_file_async

listing = list_directory(path="FILES/invoices")["content"]
names = [line.split()[-1] for line in listing.splitlines()]


async def total(name):
    answer = await read_text_file_async(path=f"FILES/invoices/{name}")
    return json.loads(answer["content"])["total"]


totals = await asyncio.gather(*(total(name) for name in names))
print(len(totals), sum(totals))

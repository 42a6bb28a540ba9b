import zipfile

rows = [["article", "count"], ["apples", 3], ["pears", 5]]
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
SHEET = "application/vnd.openxmlformats-officedocument.spreadsheetml"


def cell(value):
    if isinstance(value, int):
        return f"<c><v>{value}</v></c>"
    return f'<c t="inlineStr"><is><t>{value}</t></is></c>'


def relationship(kind, target):
    return (
        f'<Relationships xmlns="{PACKAGE}/relationships">'
        f'<Relationship Id="r1" Type="{OFFICE}/{kind}" Target="{target}"/></Relationships>'
    )


data = "".join("<row>" + "".join(map(cell, row)) + "</row>" for row in rows)
with zipfile.ZipFile("/results/stock.xlsx", "w") as book:
    book.writestr(
        "[Content_Types].xml",
        f'<Types xmlns="{PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{SHEET}.sheet.main+xml"/>'
        f'<Override PartName="/xl/sheet1.xml" ContentType="{SHEET}.worksheet+xml"/></Types>',
    )
    book.writestr("_rels/.rels", relationship("officeDocument", "xl/workbook.xml"))
    book.writestr("xl/_rels/workbook.xml.rels", relationship("worksheet", "sheet1.xml"))
    book.writestr(
        "xl/workbook.xml",
        f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets>'
        '<sheet name="stock" sheetId="1" r:id="r1"/></sheets></workbook>',
    )
    book.writestr("xl/sheet1.xml", f'<worksheet xmlns="{MAIN}"><sheetData>{data}</sheetData></worksheet>')

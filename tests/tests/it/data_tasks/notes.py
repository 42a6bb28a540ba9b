from tools.files import list_directory, read_text_file
from tools.memory import create_entities, read_graph

listing = list_directory(path="FILES/notes")["content"]
entities = []
for line in listing.splitlines():
    name = line.split()[-1]
    text = read_text_file(path=f"FILES/notes/{name}")["content"]
    entities.append({"name": name.removesuffix(".txt"), "entityType": "note", "observations": text.splitlines()})
create_entities(entities=entities)
print([(entity["name"], len(entity["observations"])) for entity in read_graph()["entities"]])

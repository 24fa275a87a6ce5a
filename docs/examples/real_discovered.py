"""Discover concepts of a network on photographs without labels, score them beside random banks, and draw them.

python docs/examples/real_discovered.py model 10 photographs textures
"""

import sys
from pathlib import Path

import imagenet_network
from imagenet_network import MEAN, STD, load_photographs

from captum_concepts import ConceptBank, embed, show_top_images
from quantus_concepts import plot_discovered, score_discovered
from quantus_concepts.metrics.discovered import verdicts
from quantus_concepts.metrics.discovered.rows import HALVES, SHARE


def main(factory: str, n_concepts: str, *folders: str) -> None:
    """Write the table and the pictures of so many concepts of a network (model or untrained), and print the table."""
    files = [file for folder in folders for file in sorted(Path(folder).rglob("*.jpg"))]
    network, images = getattr(imagenet_network, factory)(), load_photographs(files)
    backbone, _, head = network
    bank = ConceptBank.from_activations(backbone, images, int(n_concepts))
    table = score_discovered(backbone, bank, images, head, display_progressbar=True)
    table.to_csv(f"{factory} {n_concepts}.csv", index=False)
    figure, _ = plot_discovered(table)
    figure.savefig(f"{factory} {n_concepts}.png", dpi=150)
    overall = table[table["item"] == ""]
    print(overall.drop(columns=["item", "reason"]).round(3).to_string(index=False))
    of_concepts = table[table["item"] != ""]
    columns = ["baseline", "value", "low", "high", "n"]
    for metric in (HALVES, SHARE):
        rows = of_concepts[of_concepts["metric"] == metric]
        print(metric, rows.set_index("item")[columns].round(2).to_string(), sep="\n")
    print(verdicts(table).to_string())
    values = embed(backbone, images.split(32)).features @ bank.cavs.T
    for name, column in zip(bank.names, values.T, strict=True):
        shown = images[column.topk(8).indices]
        pictures = shown * STD[0] + MEAN[0]
        figure, _ = show_top_images(
            network, shown, name, layer="0", bank=bank, pictures=pictures
        )
        figure.savefig(f"{factory} {name}.png", dpi=100)


if __name__ == "__main__":
    main(*sys.argv[1:])

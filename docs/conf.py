"""The documentation site: `sphinx-build -W -n --keep-going docs OUT` runs every example and fails on any warning."""

from __future__ import annotations

import importlib.metadata
import os
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))

# Kernels inherit it: figures are shown whatever backend the shell asks for, and examples/ can be imported.
os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
os.environ["MATPLOTLIBRC"] = str(HERE / "matplotlibrc")
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(HERE / "examples"), os.environ.get("PYTHONPATH")])
)
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Kernels run in parallel (-j): more threads each would take more processor time without ending earlier.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Of libraries that autodoc imports in this process.
warnings.filterwarnings("ignore")

project = "quantus-concepts"
author = "The quantus-concepts developers"
copyright = author
release = importlib.metadata.version("quantus-concepts")
version = release

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_nb",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinxext.opengraph",
    "api",
    "commands",
    "figures",
    "mathml",
    "metrics",
    "notebooks",
]
exclude_patterns = ["README.md", "examples", "_extensions", "_static", "_templates"]

# Text and notebooks.
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 3
nb_execution_mode = os.environ.get("DOCS_EXECUTION", "force")
nb_execution_raise_on_error = True
nb_execution_timeout = 240
nb_execution_in_temp = True
nb_execution_show_tb = True
nb_merge_streams = True
# Progress bars, and warnings of libraries about the notebook they run in.
nb_output_stderr = "remove"
suppress_warnings = ["mystnb.unknown_mime_type"]

# The reference.
autosummary_generate = False
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
default_role = "name"
nitpicky = True
# Names of others, which resolve where their inventories are fetched; names of our modules are told in prose.
nitpick_ignore_regex = [
    (
        r"py:.*",
        r"(torch|torchvision|numpy|np|pandas|pd|quantus|captum|open_clip|timm|diffusers|transformers|ray)\b.*",
    ),
    # Types in signatures.
    (
        r"py:class",
        r"(collections|contextlib|matplotlib|os|pathlib|sklearn|threading)\..*",
    ),
    (
        r"py:class",
        r"(Tensor|ArrayLike|Numbers|CallArguments|Control|Controls|Method|ModelInterface|ModelLevels|RangeScorer|Thresholds|CAV|Pool|Maps|ModelCard|nn\.Module|Axes|Figure|Transform|Explanation|Path|Store|State|nn\.Linear|PIL\.Image\.Image|dict\[.*)",
    ),
    (r"py:class", r"captum_concepts\.models\.editing\.C"),
]
intersphinx_mapping = (
    {
        "python": ("https://docs.python.org/3", None),
        "torch": ("https://docs.pytorch.org/docs/stable", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "pandas": ("https://pandas.pydata.org/docs", None),
        "quantus": ("https://quantus.readthedocs.io/en/latest", None),
    }
    if os.environ.get("DOCS_INTERSPHINX")
    else {}
)

html_theme = "pydata_sphinx_theme"
html_title = "quantus-concepts"
templates_path = ["_templates"]
html_static_path = ["_static", "pictures/concept_maps.jpg"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_math_renderer = "mathml"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_prev_next": True,
    "navbar_end": ["cite", "theme-switcher", "navbar-icon-links"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
}
# Of a site that is published beside those of other versions (_extensions/versions.py).
if version_name := os.environ.get("DOCS_VERSION"):
    html_theme_options |= {
        "switcher": {"json_url": "../switcher.json", "version_match": version_name},
        "check_switcher": False,
        "navbar_end": [
            "cite",
            "version-switcher",
            "theme-switcher",
            "navbar-icon-links",
        ],
        "show_version_warning_banner": True,
    }
html_sidebars = {
    "index": [],
    "installing": [],
    "gallery": [],
    "faq": [],
    "about": [],
}

# What a link to a page shows elsewhere; the address is a placeholder, as in pyproject.toml.
ogp_site_url = (
    importlib.metadata.metadata("quantus-concepts")
    .get_all("Project-URL")[1]
    .split(", ")[1]
)
ogp_site_name = project
ogp_image = "_static/concept_maps.jpg"
ogp_social_cards = {"enable": False}

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp"
linkcheck_ignore = [
    r"https://example\.org/.*"
]  # placeholders until the project has a place
linkcheck_timeout = 20

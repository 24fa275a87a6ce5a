"""The forward pass of each released model as plain arithmetic in float64, of the formulas of its paper and code.

`forward` takes the numbers that `released_files.py` has drawn, not a file, and embeddings z (N, d).
"""

from __future__ import annotations

import torch


def forward(case, z):
    """Return concept values (N, L) and class logits (N, K), None of a bank."""
    n = {key: value.double() if isinstance(value, torch.Tensor) else value for key, value in case.numbers.items()}
    return FORMULAS[case.format](n, z.double(), case.options)


def label_free(n, z, options):
    """c = (W_c z - mean) / std;  y = W_g c + b_g."""
    c = (z @ n["W_c"].T - n["proj_mean"]) / n["proj_std"]
    suffix = f"@NEC={options['nec']}" if options.get("nec") else ""
    return c, c @ n[f"W_g{suffix}"].T + n[f"b_g{suffix}"]


def vlg(n, z, options):
    """h = W_0 z + b_0;  h = W_i relu(h) + b_i;  c = (h - mean) / std;  y = W_g c + b_g."""
    for i, (weight, bias) in enumerate(n["layers"]):
        z = (torch.relu(z) if i else z) @ weight.double().T + bias.double()
    c = (z - n["mean"]) / n["std"]
    suffix = f"@NEC={options['nec']}" if options.get("nec") else ""
    return c, c @ n[f"W_g{suffix}"].T + n[f"b_g{suffix}"]


def bank(n, z, options):
    """c_j = (v_j z + b_j) / |v_j|."""
    return (z @ n["cavs"].T + n["intercepts"].flatten()) / n["cavs"].norm(dim=1), None


def pcbm(n, z, options):
    """c = (V z + b) / |V|;  y = W c + w_0, of one number per image where there are two classes."""
    c = ((n["cavs"] @ z.T + n["intercepts"]) / n["norms"]).T
    return c, c @ n["weight"].T + n["bias"]


def pcbm_hybrid(n, z, options):
    """y = W c + w_0 + R z + r_0; with two classes the first part is one number, added to both."""
    c, y = pcbm(n, z, options)
    return c, y + z @ n["residual"].T + n["residual_bias"]


def koh(n, z, options):
    """c_j = w_j z + b_j, through a sigmoid or a ReLU if the model says so;  y = W_g c + b_g."""
    c = z @ n["weight"].T + n["bias"]
    c = c.sigmoid() if n["use_sigmoid"] else c.relu() if n["use_relu"] else c
    return c, c @ n["W_g"].T + n["b_g"]


def dn_cbm(n, z, options):
    """c = relu(W (z - b) + a);  y = P c."""
    c = torch.relu((z - n["tied_bias"]) @ n["weight"][0].T + n["bias"][0])
    return c, c @ n["probe"].T


def cem_cbm(n, z, options):
    """c = sigmoid(W z + b), or without the sigmoid;  h = leaky_relu(W_i h + b_i) of c, or c;  y = W_g h + b_g."""
    c = z @ n["weight"].T + n["bias"]
    c = c.sigmoid() if n["sigmoid"] else c
    h = c
    for weight, bias in n["hidden"]:
        h = torch.nn.functional.leaky_relu(h @ weight.double().T + bias.double(), 0.01)
    return c, h @ n["W_g"].T + n["b_g"]


def splice_directions(n, z, options):
    """u = D (z / |z| - mean): what the dictionary says of an embedding before the sparse solver."""
    return (z / z.norm(dim=1, keepdim=True) - n["mean"]) @ n["dictionary"].T, None


FORMULAS = {
    "label-free": label_free,
    "vlg": vlg,
    "pcbm-bank": bank,
    "pcbm": pcbm,
    "pcbm-hybrid": pcbm_hybrid,
    "koh": koh,
    "dn-cbm": dn_cbm,
    "cem-cbm": cem_cbm,
    "splice": splice_directions,
}

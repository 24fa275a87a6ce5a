"""The paper's own figures, to stand beside ours on the same data.

Source: Yang and Kim (2019), "BIM: Towards Quantitative Evaluation of Interpretability Methods with Ground
Truth", Figure 3 (accuracies and shares in %, divergences as they are) and Sections 5.1 to 5.3: ResNet-50 from
ImageNet, objects of COCO on scenes of MiniPlaces.
"""

from __future__ import annotations

SOURCE = "Yang and Kim (2019), BIM: Towards Quantitative Evaluation of Interpretability Methods with Ground Truth"

#: Figure 3, top: by model, then by field of `PremiseCheck`.
PREMISES: dict[str, dict[str, float]] = {
    "f_o": {
        "accuracy_with": 91.1,
        "accuracy_without": 93.1,
        "accuracy_only": 9.7,
        "remains_correct": 98.4,
        "median_kl_same": 7.9e-8,
        "median_kl_changed": 2.2,
    },
    "f_s": {
        "accuracy_with": 94.0,
        "accuracy_without": 93.6,
        "accuracy_only": 9.8,
        "remains_correct": 98.3,
        "median_kl_same": 7.7e-8,
        "median_kl_changed": 1.0,
    },
}

#: Figure 3, bottom: accuracy of the target class with and without the object, by commonality k.
COMMONALITY: dict[float, tuple[float, float]] = {
    0.1: (97, 78),
    0.2: (98, 77),
    0.3: (96, 81),
    0.4: (95, 75),
    0.5: (96, 78),
    0.6: (95, 81),
    0.7: (92, 93),
    0.8: (93, 93),
    0.9: (92, 93),
    1.0: (95, 93),
}

#: Highest in MCS and in correlation (Figures 5 and 7), next to TCAV.
HIGHEST_CONTRAST = "Grad-CAM"
#: Highest in IDR and IIR (Figure 9), in the paper's order.
ROBUST = ("Grad-CAM", "vanilla gradient")
#: TCAV's baseline, the only number of Figure 5 that the paper prints (its caption).
TCAV_BASELINE = -0.3
#: Every other method has an IIR below this (Section 5.3).
MISLED = 0.2

"""Objects on scenes, of which it is known what matters: painted, of folders, COCO and BAM."""

# all.awk -- which tables there are.
#
# Book: chapters 01 to 20.  Checked by: make book.  Next: ../book.mk.
END {
    sort_rows()
    stage_tables()
    whole_tables(out "/08_forward.md", "08_forward")
    whole_tables(out "/13_backward.md", "13_backward")
    whole_tables(out "/17.md", "")
    edge_table(out "/17-edges.md")
    mode_table(out "/18-modes.md")
    bound_table(out "/18-bounds.md")
    roofline()
    rank_tables(out "/19.md")
    form_tables(out "/19-forms.md")
    cut_rows(out "/20-cuts.tsv")
    walk_table(out "/15-forms.md")
    version_table(out "/15_scan.md")
    judge_table(out "/18.md")
    precision_table(out "/18-gpu.md")
    nccl_table(out "/19-nccl.md")
    ladder_tables(out)
    torch_tables(out "/torch.md", out "/torch-judged.md")
    prediction_table("book/data/predictions.tsv", out "/predictions.md")
    part_table("book/data/predictions-maps.tsv", out "/predictions-maps.md")
    readme_tables(out "/readme.md")
}

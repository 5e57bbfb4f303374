# ncu.py -- a raw page of Nsight Compute (ncu --page raw --csv) as rows of counters.
#
# Book: chapter 17, "Reading ncu".  Checked by: the book's tables.  Next: records.py.
# A row has the counters that the book reads; a missing counter is empty. `stalled` is the
# reason for which most warps waited, and their number per issued instruction.
import csv
import re

COUNTERS = {
    "registers": "launch__registers_per_thread", "smem": "launch__shared_mem_per_block",
    "cycles": "sm__cycles_elapsed.max", "instructions": "smsp__inst_executed.sum",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "fma": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "tensor": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "loads": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "stores": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "local_sectors": "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum"}


def counter_rows(path, line):
    """Rows of a raw page. line: "stage T H", or "stage T H HV variant"."""
    stage, T, H, *more = line.split()
    name = re.search(r"ncu\.(.*)\.csv$", path)[1]
    with open(path, encoding="utf-8", newline="") as f:
        lines = list(csv.reader(line for line in f if line.startswith('"')))
    head, unit, kernels = lines[0], lines[1], lines[2:] if more else lines[2:3]
    at = {column: i for i, column in enumerate(head)}

    def number(cells, column, scale=None):
        if column not in at:
            return ""
        text = cells[at[column]].replace(",", "")
        return float(text) * scale.get(unit[at[column]][:1], 1) if scale else text

    bytes_of = {"K": 1e3, "M": 1e6, "G": 1e9}
    prefix, suffix = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"
    reasons = [n for n in head if n.startswith(prefix) and n.endswith(suffix)
               and "_selected_" not in n]
    for cells in kernels:
        row = {"kind": "counter", "stage": stage, "variant": name, "T": T, "H": H}
        row.update((n, number(cells, counter)) for n, counter in COUNTERS.items())
        row["dram_bytes"] = "%.0f" % sum(number(cells, n, bytes_of) or 0 for n in
                                         ("dram__bytes_read.sum", "dram__bytes_write.sum"))
        stalls = [(float(number(cells, n)), n[len(prefix):-len(suffix)].replace("_", " "))
                  for n in reasons if number(cells, n)]
        row["stalled"] = "%s %.1f" % max(stalls)[::-1] if stalls else ""
        if more:
            kernel = re.sub(r"^void |[<(].*|_kernel.*", "", cells[at["Kernel Name"]])
            us = number(cells, "gpu__time_duration.sum", {"n": 1e-3, "m": 1e3})
            row.update(variant=more[1], HV=more[0], case=name, us="%g" % us,
                       what=re.sub("^(gdn|kda)_", "", kernel))
        yield row

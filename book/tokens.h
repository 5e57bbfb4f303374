/* tokens.h -- the worked example of the whole book: three tokens, K = V = 2.
 * Book: chapter 00.  Used by: book/example.c and book/figures/svg.py.
 * Keys have norm 1, decays are powers of two and scale is 1, so numbers are short. */
#pragma once

enum { EX_T = 3, EX_K = 2, EX_V = 2, EX_C = 2 };
static const double ex_q[EX_T][EX_K] = { { 1, 1 }, { 1, 0 }, { 0, 1 } };
static const double ex_k[EX_T][EX_K] = { { 1, 0 }, { 0.6, 0.8 }, { 0.8, -0.6 } };
static const double ex_v[EX_T][EX_V] = { { 1, 2 }, { -1, 1 }, { 2, 0 } };
static const double ex_beta[EX_T] = { 0.5, 0.75, 1 };
static const double ex_log2_decay[EX_T][EX_K] = { { -1, 0 }, { 0, -1 }, { -1, -2 } };

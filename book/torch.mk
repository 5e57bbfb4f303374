# torch.mk -- tests book/examples/torch, the layer for PyTorch, if PyTorch is installed.

test_needs   += $B/libkcp.so $B/kcp-check
test_scripts += tests/cli/torch.sh
.PHONY: test-torch
test-torch: $B/libkcp.so $B/kcp-check
	@sh tests/cli/torch.sh $B

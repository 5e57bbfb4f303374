# places.sh -- places for what runs side by side: one takes a place, and gives it back.
#
# Book: none.  Checked by: ../../book/labs/try.sh, which reads it.  Next: try.sh.
# places FILE N: N places, kept in a FIFO that is made there; descriptor 7 is its own.
places() {
    mkfifo "$1" && exec 7<>"$1" || return 1
    for place in $(seq "$2"); do echo >&7; done
}
take_place() { read -r place <&7; }
give_place() { echo >&7; }

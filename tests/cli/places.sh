# places.sh -- a counting semaphore for jobs that run concurrently.
#
# Book: none.  Checked by: ../../book/labs/try.sh.  Next: ../../book/labs/try.sh.
# places FILE N: makes a semaphore of N in a FIFO at FILE, open as descriptor 7.
places() {
    mkfifo "$1" && exec 7<>"$1" || return 1
    for place in $(seq "$2"); do echo >&7; done
}
take_place() { read -r place <&7; }
give_place() { echo >&7; }

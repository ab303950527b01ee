# supervise.sh DIRECTORY NAME PROGRAM ARGUMENT...
#
# Runs one daemon for as long as standard input is open. The test process holds the other end of that pipe, so the
# daemon ends with it, whether it returned, panicked or was killed: no signal handler is needed and none can be missed.
directory=$1
name=$2
shift 2
exec 2>>"$directory/logs/$name.log"
# The shell gives a background command /dev/null as standard input: keep the pipe under another number.
exec 3<&0

"$@" </dev/null >&2 3<&- &
daemon=$!
echo "$daemon"
exec >&2

{
  read -r _ <&3
  # A daemon that ended by itself is waited for, so its number may belong to a stranger by now.
  [ -e "$directory/state/$name.exit" ] || kill -KILL "$daemon"
} &
watcher=$!
wait "$daemon"
echo "$?" >"$directory/state/$name.exit"
wait "$watcher"

# The last supervisor of the cluster cleans up: rmdir succeeds once, when every other has left.
rm -f "$directory/running/$name"
if rmdir "$directory/running" 2>/dev/null; then
  rm -rf "$directory/state"
  [ -e "$directory/keep" ] || rm -rf "$directory"
fi

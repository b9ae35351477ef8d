#!/bin/sh
# Runs a local Airflow until Ctrl-C, from the root of the checkout. `airflow standalone` would serve the logs of tasks on all
# network interfaces, and start tasks before the API server that they report to.
set -eu
set -a
. conf/airflow.env
OFFSETLAKE_LAKE=$AIRFLOW_HOME/lake
OFFSETLAKE_LOG=$1
set +a

airflow db migrate >/dev/null
airflow pools set offsetlake_writer 1 "writes to the lake" >/dev/null

started=
trap 'wait; exit 130' INT # Ctrl-C reaches all processes; a scheduler that is interrupted twice leaves its workers running
trap 'kill $started; wait; exit 143' TERM
start() {
    airflow "$@" >"$AIRFLOW_HOME/$1.log" 2>&1 &
    started="$started $!"
}

start api-server
until python -c "import urllib.request; urllib.request.urlopen('$AIRFLOW__API__BASE_URL/api/v2/version')" 2>/dev/null; do
    kill -0 $! 2>/dev/null || { tail "$AIRFLOW_HOME/api-server.log"; exit 1; }
    sleep 1
done
start dag-processor
start scheduler --skip-serve-logs
echo "Airflow is at $AIRFLOW__API__BASE_URL and needs no login; its logs are in $AIRFLOW_HOME; stop it with Ctrl-C"
if [ "$1" = "$PWD/tests/fixtures/broker-log" ]; then
    echo "The bundled log contains a transaction that never ended: the task hanging_transactions of offset_maintenance fails for it, all other tasks succeed"
fi
wait

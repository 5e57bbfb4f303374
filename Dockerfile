# The two commands of the README in a bare Debian 12: the CPU's half, with the book.
#   docker build -t kcp . && docker run --rm kcp            runs the tests
#   docker run --rm kcp make run
FROM debian:12-slim
WORKDIR /kcp
COPY . .
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends gcc libc6-dev make git \
 && sh .ci/setup mpi \
 && rm -rf /var/lib/apt/lists/*
RUN make run
CMD ["make", "test"]

# The image of `segue operator`: one static binary, no shell, no user that can become root.
#   docker build -t registry.example/segue:0.1.0 .
FROM rust:1.95-alpine AS build
# ring compiles a little C.
RUN apk add --no-cache gcc musl-dev
WORKDIR /src
COPY . .
RUN cargo build --locked --profile dist -p segue

FROM scratch
COPY --from=build /src/target/dist/segue /segue
USER 65532:65532
ENTRYPOINT ["/segue"]

// RUN: xdsl-opt -p 'set-machine{name=a100},warp-specialization' %s | filecheck %s --check-prefix=AMPERE
// RUN: xdsl-opt -p 'set-machine{name=h100},warp-specialization' %s | filecheck %s --check-prefix=HOPPER

// Below sm_90 the pass declines whatever the kernel is; from there on it says what is missing. No kernel changes.

!X = memref<?xf32, strided<[1], offset: ?>, #diagram.array<[n], level = device>>
!x = tensor<32xf32, #diagram.array<[n], level = register, layout = #cuda.layout<register = [], lane = [n:32:1], warp = []>>>

// AMPERE: cuda.kernel @streamed (%X: memref<?xf32, {{.*}}>, %n: index) threads 32 shared 0 {
// AMPERE-NEXT: %zero = arith.constant 0 : index
// AMPERE-NEXT: %piece = arith.constant 32 : index
// AMPERE-NEXT: scf.for %n0 = %zero to %n step %piece {
// AMPERE-NEXT: %x = cuda.load %X[%n0] widths [1] :
// AMPERE-NEXT: cuda.store %x into %X[%n0] widths [1] :
cuda.kernel @streamed (%X: !X, %n: index) threads 32 shared 0 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 32 : index
  scf.for %n0 = %zero to %n step %piece {
    %x = cuda.load %X[%n0] widths [1] : !X -> !x
    cuda.store %x into %X[%n0] widths [1] : !x, !X
  }
}

cuda.kernel @whole (%X: !X, %n: index) threads 32 shared 0 {
  %zero = arith.constant 0 : index
  %x = cuda.load %X[%zero] widths [1] : !X -> !x
  cuda.store %x into %X[%zero] widths [1] : !x, !X
}

// AMPERE: func.func @host
// AMPERE-SAME: #hierarchy.step<"decline warp-specialization", "@streamed", "registers move between warps only from sm_90 on", "the machine a100 is sm_80">
// AMPERE-SAME: #hierarchy.step<"decline warp-specialization", "@whole", "registers move between warps only from sm_90 on", "the machine a100 is sm_80">
// AMPERE-NEXT: %aligned = cuda.alignment %X :
// AMPERE-NEXT: cuda.launch @streamed grid %n aligned %aligned(%X, %n) :
// AMPERE-NEXT: cuda.launch @whole grid %n aligned %aligned(%X, %n) :
// HOPPER: func.func @host
// HOPPER-SAME: #hierarchy.step<"decline warp-specialization", "@streamed",
// HOPPER-SAME: #hierarchy.step<"decline warp-specialization", "@whole", "a producer overlaps copies with computation", "no loop of the kernel copies tiles">
func.func @host(%X: !X, %n: index) {
  %aligned = cuda.alignment %X : !X
  cuda.launch @streamed grid %n aligned %aligned (%X, %n) : !X, index
  cuda.launch @whole grid %n aligned %aligned (%X, %n) : !X, index
  func.return
}

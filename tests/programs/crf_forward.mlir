// The forward sums of a conditional random field (CRF), as of a hidden Markov model: what paths that end in a label score
// in all, over all pairs of labels. Each position moves what lies along the labels `j` to those before it, `i`, and takes
// a log-sum-exp over these; in the end one over the labels is the logarithm of the partition function.

!E = tensor<?x?x24xf32, #diagram.array<[b, t, j]>>
!T = tensor<24x24xf32, #diagram.array<[i, j]>>
!A = tensor<?x24xf32, #diagram.array<[b, j]>>
!B = tensor<?x24xf32, #diagram.array<[b, i]>>
!P = tensor<?x24x24xf32, #diagram.array<[b, i, j]>>
!z = tensor<?xf32, #diagram.array<[b]>>

func.func @crf_forward(%E: !E, %T: !T, %begin: !A) -> (!z, !E)
    attributes {sizes = #diagram.sizes<b = 3, t = 30>} {
  %last, %all = diagram.recurrence over t (%a = %begin : !A) each (%e = %E : !E, %w = %T : !T) -> (!A, !E) {
    %before = diagram.rename %a (j as i) : !A -> !B
    %pairs = diagram.map (%x = %before : !B, %y = %w : !T) -> !P {
      %s = arith.addf %x, %y : f32
      diagram.yield %s : f32
    }
    %most = diagram.reduce max %pairs over [i] : !P -> !A
    %powers = diagram.map (%x = %pairs : !P, %m = %most : !A) -> !P {
      %s = arith.subf %x, %m : f32
      %r = math.exp %s : f32
      diagram.yield %r : f32
    }
    %sum = diagram.reduce add %powers over [i] : !P -> !A
    %after = diagram.map (%s = %sum : !A, %m = %most : !A, %x = %e : !A) -> !A {
      %l = math.log %s : f32
      %u = arith.addf %l, %m : f32
      %r = arith.addf %u, %x : f32
      diagram.yield %r : f32
    }
    diagram.yield %after, %after : !A, !A
  }
  %top = diagram.reduce max %last over [j] : !A -> !z
  %rest = diagram.map (%x = %last : !A, %m = %top : !z) -> !A {
    %s = arith.subf %x, %m : f32
    %r = math.exp %s : f32
    diagram.yield %r : f32
  }
  %whole = diagram.reduce add %rest over [j] : !A -> !z
  %Z = diagram.map (%s = %whole : !z, %m = %top : !z) -> !z {
    %l = math.log %s : f32
    %r = arith.addf %l, %m : f32
    diagram.yield %r : f32
  }
  func.return %Z, %all : !z, !E
}

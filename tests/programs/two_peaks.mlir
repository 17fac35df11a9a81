// How far two maxima are apart that include different numbers: neither goes along as the other does.

!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!V = tensor<?x32xf32, #diagram.array<[x, e]>>
!m = tensor<?xf32, #diagram.array<[q]>>
!A = tensor<?x32xf32, #diagram.array<[q, e]>>

func.func @two_peaks(%S: !S, %V: !V, %K: !m) -> (!A, !m)
    attributes {sizes = #diagram.sizes<q = 9, x = 37>} {
  %m = diagram.reduce max %S over [x] : !S -> !m
  %e = diagram.map (%s = %S : !S, %most = %m : !m) -> !S {
    %d = arith.subf %s, %most : f32
    %p = math.exp %d : f32
    diagram.yield %p : f32
  }
  %l = diagram.reduce add %e over [x] : !S -> !m
  %A = diagram.contract %e, %V over [x] accumulate f32 : !S, !V -> !A
  %O = diagram.map (%a = %A : !A, %whole = %l : !m) -> !A {
    %share = arith.divf %a, %whole : f32
    diagram.yield %share : f32
  }
  %n = diagram.map (%most = %m : !m, %k = %K : !m) -> !m {
    %few = arith.constant 1.75 : f32
    %u = arith.maximumf %most, %few : f32
    %v = arith.maximumf %k, %most : f32
    %y = arith.subf %u, %v : f32
    diagram.yield %y : f32
  }
  func.return %O, %n : !A, !m
}
